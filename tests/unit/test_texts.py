"""The page of all texts is as the code has them, and no text has words that users would have to guess."""

from __future__ import annotations

import re

import pytest

from scripts.texts import PAGE, page

REFUSED = (
    r"who asks",
    r"whoever",
    r"\bnobody\b",
    r"\bsomebody\b",
    r"\bwhom\b",
    r"who lives?\b",
    r"does not live\b",
    r"is not there\b",
    r"\bby (itself|themselves)\b",
    r"so (many|much|few) [a-z ]+ that",
    r"so many seconds",
    r"nothing expected",
    r"look whether",
    r"made anew",
    r"\bof before\b",
    r"not (to|be) told",
    r"cannot be told",
    r"counts? on it\b",
    r"\bis believed\b",
    r"(?<!there )\bis no (PEM|JSON|file|directory|window|terminal|certificate)",
    r"(?-i:[^\s.]{4}\. [a-z])",
    r"^(what|whether|of|as|who|whose) .* (is|are|was|has|have|does|do|may|said)\.$",
)
"""Patterns of whole texts, whatever their case. What is mended gets one."""


def test_the_page_is_as_the_code_has_it() -> None:
    """``python scripts/texts.py`` writes it."""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("pattern", REFUSED)
def test_no_text_is_a_riddle(pattern: str) -> None:
    texts = [line.partition(": ")[2] for line in PAGE.read_text(encoding="utf-8").splitlines()]
    assert len(texts) > 2_000
    assert [text for text in texts if re.search(pattern, text, re.IGNORECASE)] == []
