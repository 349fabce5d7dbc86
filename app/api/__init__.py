"""The HTTP API. Its paths name converters that must be known before any route is made."""

from app.api import addresses as addresses
