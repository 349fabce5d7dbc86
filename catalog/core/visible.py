"""Characters that cannot be seen, and how a text that has some is shown.

They forge lines in tables and logs, turn a line's direction, or make two names look like one.
"""

from __future__ import annotations

import re

HIDDEN = (
    "\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""A regular expression's class: control characters, separators of lines, marks of direction, and what has no
width or no ink. Halves of surrogate pairs are hidden, too; not every engine lets a class name them."""

VISIBLE_PATTERN = f"^[^{HIDDEN}]*$"
"""Pattern for schemas of texts that are names."""

_HIDDEN = re.compile(f"[{HIDDEN}\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def hidden_character(text: str) -> str | None:
    """The first that cannot be seen, as U+202E."""
    hidden = _HIDDEN.search(text)
    return None if hidden is None else f"U+{ord(hidden[0]):04X}"


def visible(text: str) -> str:
    """Return the text on one line, with each hidden character written as an escape; other texts are what they
    were."""
    return _HIDDEN.sub(_escape, text)


def visible_json(document: str) -> str:
    """The same document: escapes of JSON in place of characters that would hide or turn a line."""
    return _HIDDEN.sub(lambda hidden: hidden[0] if hidden[0] == "\n" else _json_escape(hidden[0]), document)


def _escape(hidden: re.Match[str]) -> str:
    character, code = hidden[0], ord(hidden[0])
    if character in _SHORT:
        return _SHORT[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[start : start + 2].hex()}" for start in range(0, len(units), 2))
