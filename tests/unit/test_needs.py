"""A need that a machine does not meet: a skip, and a failure where all is required."""

from __future__ import annotations

import pytest

from tests.fixtures.needs import REQUIRED, need

REASON = "networks of a test's own need root"


def test_what_is_missing_is_skipped_and_fails_where_all_is_required() -> None:
    need("", {"CI": "true"})
    for plain in ({}, dict.fromkeys(REQUIRED, "")):
        with pytest.raises(pytest.skip.Exception, match=REASON):
            need(REASON, plain)
    for name in REQUIRED:
        with pytest.raises(pytest.fail.Exception, match=f"{REASON}; nothing may be missing"):
            need(REASON, {name: "true"})
