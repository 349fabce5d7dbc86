"""Names of zones, tables and columns: the checks that need nothing but the name."""

from __future__ import annotations

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import Name

NAME_CHARS_MAX = 128


def check_name(name: Name, what: str = "a zone") -> None:
    """Not blank, at most 128 characters, and in double quotes where it needs them. Raises RefusedError."""
    if name.malformed:
        message = (
            f"{_shown(name.text)} is not a name: one has letters, digits and underscores, no digit first; "
            "any other is written in double quotes"
        )
        raise RefusedError(ErrorKind.NAME_INVALID, message, name.position)
    if not name.text.strip():
        raise RefusedError(ErrorKind.NAME_INVALID, f"{what}'s name is not blank", name.position)
    if len(name.text) > NAME_CHARS_MAX:
        message = f"{what}'s name has at most {NAME_CHARS_MAX} characters, this one has {len(name.text)}"
        raise RefusedError(ErrorKind.NAME_TOO_LONG, message, name.position)


def _shown(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
