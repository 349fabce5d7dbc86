"""Rules for texts that can be keys or ids of operations: the same for the API and the command line."""

from __future__ import annotations

import re

from rebalance.core.keyspace.write_terms import ABANDONED_MAX

KEY_CHARS_MAX = 1024
OPERATION_ID_PATTERN = "^[!-~]{1,128}$"
OPERATION_IDS_PATTERN = f"^[!-~]{{1,128}}( [!-~]{{1,128}}){{0,{ABANDONED_MAX - 1}}}$"
"""Pattern of one or more operation ids with blanks between them, which no id has."""


def check_key(key: str) -> None:
    """1 to 1024 characters, of which none is half of a pair. Raises ValueError."""
    if not 1 <= len(key) <= KEY_CHARS_MAX:
        raise ValueError(f"a key has 1 to {KEY_CHARS_MAX} characters, not {len(key)}")
    check_text("key", key)


def check_text(what: str, text: str) -> None:
    """Raises ValueError for what is not in UTF-8: half of a surrogate pair, as Python makes of bytes of an
    argument that are none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the {what} is not UTF-8 text (character {error.start + 1})") from error


def check_operation_id(operation_id: str) -> None:
    """Check an operation id as a header takes it: 1 to 128 visible ASCII characters. Raises ValueError."""
    if not re.fullmatch(OPERATION_ID_PATTERN, operation_id):
        raise ValueError("an operation id has 1 to 128 letters, digits and signs of ASCII, and no blanks")
