"""Rows of the table of errors (``catalog.core.error_kinds``): the terms of a write of a key."""

from __future__ import annotations

from catalog.core.error_rows import ErrorRow

KEY_EXISTS = ErrorRow(
    8011, "23505", 409, "The key exists", "Nothing was written. Read the key, and write with its revision."
)
REVISION_CHANGED = ErrorRow(
    8012,
    "40001",
    412,
    "The key is not at the wanted revision",
    "Nothing was written. Read the key again, and decide with what it holds now.",
)
OPERATION_ABANDONED = ErrorRow(
    8013,
    "57014",
    409,
    "The write was abandoned by a later one",
    "It was not applied, and never will be. Read the key, and write with a new operation id.",
)
