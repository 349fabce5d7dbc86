"""Names of zones, tables and columns: the checks that need nothing but the name."""

from __future__ import annotations

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import Name, Position
from catalog.core.visible import hidden_character

NAME_CHARS_MAX = 128
RESERVED = (".", "..")
"""Folders in an address: many clients take them out of it before they send it."""


def check_name(name: Name, what: str = "a zone") -> None:
    """Check a name: not blank, at most 128 characters, and in double quotes where it needs them. Raises
    RefusedError."""
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
    if name.text != name.text.strip():
        message = f"{what}'s name begins or ends with a space, which nobody sees"
        raise RefusedError(ErrorKind.NAME_CONFUSABLE, message, name.position)
    check_visible(name.text, f"{what}'s name", name.position)


def spellings(text: str) -> tuple[str, ...]:
    """The names that a text in an address or an argument may stand for, the first that is there: as SQL reads
    it, in double quotes exactly and else in upper case, and last the text itself."""
    inner = text[1:-1].replace('""', "")
    if len(text) > 2 and text[0] == text[-1] == '"' and '"' not in inner:
        return text[1:-1].replace('""', '"'), text
    return text.upper(), text


def written(name: str) -> str:
    """The text that stands for this name and no other: in double quotes where it needs them."""
    quoted = '"' + name.replace('"', '""') + '"'
    return name if spellings(name)[0] == name else quoted


def is_confusable(name: str, other: str) -> bool:
    """Check that two names differ, and by case only."""
    return name != other and name.upper() == other.upper()


def check_visible(text: str, what: str, position: Position | None) -> None:
    """Raises RefusedError (NAME_NOT_VISIBLE)."""
    hidden = hidden_character(text)
    if hidden is not None:
        message = f"{what} contains the invisible character {hidden}"
        raise RefusedError(ErrorKind.NAME_NOT_VISIBLE, message, position)


def _shown(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
