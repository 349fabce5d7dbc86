"""Texts of people as every database takes them."""

from __future__ import annotations


def storable(text: str) -> str:
    """PostgreSQL takes no NUL, and no database half a surrogate pair."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
