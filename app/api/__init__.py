"""The HTTP API. Its paths name converters, which must be registered before any route is made."""

from app.api import addresses as addresses
