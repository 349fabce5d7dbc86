"""Retention of what is over in the catalog."""

from __future__ import annotations

from dataclasses import dataclass

KEPT_DAYS = 400
"""More than a year: what happened a year ago can be compared."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Days for which earlier versions, with what was published of them, and audit records are kept; 0: for
    ever."""

    version_days: int = KEPT_DAYS
    audit_days: int = KEPT_DAYS


KEEP_ALL = Retention(0, 0)


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Numbers of versions that cannot be read any more, and of audit records that are gone, since the call."""

    versions: int = 0
    audit_records: int = 0
