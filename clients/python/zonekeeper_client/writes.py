"""Writes of one key as values: what they ask for, and which texts they may have."""

from __future__ import annotations

import re
from dataclasses import dataclass

KEY_CHARS_MAX = 1024
OPERATION_ID_PATTERN = "^[!-~]{1,128}$"
ABANDONED_MAX = 16
"""Operation ids that one write may name."""


@dataclass(frozen=True, slots=True)
class Write:
    """``value`` None deletes the key. ``if_revision``: only while the key's last write is the one of this
    revision; ``if_absent``: only while there is no such key. ``abandons``: operation ids of earlier writes
    whose outcome is unknown: whichever of them has not been applied before this one never will be. Raises
    ValueError for what does not go together.
    """

    key: str
    value: str | None
    operation: str
    if_revision: int | None = None
    if_absent: bool = False
    abandons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_key(self.key)
        check_text("value", self.value or "")
        if not re.fullmatch(OPERATION_ID_PATTERN, self.operation):
            raise ValueError("an operation id has 1 to 128 letters, digits and signs of ASCII, and no blanks")
        if self.if_revision is not None and self.if_absent:
            raise ValueError("give if_revision or if_absent, not both")
        if self.if_revision is not None and self.if_revision < 1:
            raise ValueError(f"a revision is 1 or higher, not {self.if_revision}")

    @property
    def is_conditional(self) -> bool:
        return self.if_absent or self.if_revision is not None


@dataclass(frozen=True, slots=True)
class Written:
    """``revision``: of the partition's group, at which it was done; 0: the server is of an earlier build.
    ``repeated``: by an earlier attempt or call."""

    revision: int
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """``value`` None: there is no such key."""

    value: bytes | None
    revision: int = 0


def check_key(key: str) -> None:
    """1 to 1024 characters, of which none is half of a pair. Raises ValueError."""
    if not 1 <= len(key) <= KEY_CHARS_MAX:
        raise ValueError(f"a key has 1 to {KEY_CHARS_MAX} characters, not {len(key)}")
    check_text("key", key)


def check_text(what: str, text: str) -> None:
    """Raises ValueError for what is not in UTF-8: half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the {what} is not UTF-8 text (character {error.start + 1})") from error
