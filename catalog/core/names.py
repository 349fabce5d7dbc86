"""Names of zones, tables and columns: the checks that need nothing but the name."""

from __future__ import annotations

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import Name, Position
from catalog.core.visible import hidden_character

NAME_CHARS_MAX = 128
RESERVED = (".", "..")
"""Folders in an address: many clients take them out of it before they send it."""


def check_name(name: Name, what: str = "a zone") -> None:
    """Not blank, at most 128 characters, and in double quotes where it needs them. Raises RefusedError."""
    if name.malformed:
        message = (
            f"{_shown(name.text)} is not a valid name: use letters, digits and underscores, no leading digit; "
            "write any other name in double quotes"
        )
        raise RefusedError(ErrorKind.NAME_INVALID, message, name.position)
    if not name.text.strip():
        raise RefusedError(ErrorKind.NAME_INVALID, f"{what}'s name must not be blank", name.position)
    if len(name.text) > NAME_CHARS_MAX:
        message = f"{what}'s name has at most {NAME_CHARS_MAX} characters, this one has {len(name.text)}"
        raise RefusedError(ErrorKind.NAME_TOO_LONG, message, name.position)


def check_new_name(name: Name, what: str = "a zone") -> None:
    """The name of something to be made: what was made before this rule can still be altered, renamed and
    dropped. Raises RefusedError."""
    check_name(name, what)
    if name.text in RESERVED:
        raise RefusedError(ErrorKind.NAME_INVALID, f"{what} cannot be named {name.text}", name.position)
    check_visible(name.text, f"{what}'s name", name.position)


def check_visible(text: str, what: str, position: Position | None) -> None:
    """Raises RefusedError (NAME_NOT_VISIBLE)."""
    hidden = hidden_character(text)
    if hidden is not None:
        message = f"{what} contains the invisible character {hidden}"
        raise RefusedError(ErrorKind.NAME_NOT_VISIBLE, message, position)


def _shown(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
