"""Changes of a zone that move its data, and their refusal while rebalancing is off (VOL-097)."""

from __future__ import annotations

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.snapshot import Change
from catalog.core.zone import Zone

PLACED = ("replicas", "quorum_size", "nodes_filter", "algorithm")
"""Fields of a zone that decide where its data is, and can be altered."""
TIMERS = ("auto_scale_up", "auto_scale_down")
"""Shorter ones apply what waits for them."""


def moves_data(before: Zone, after: Zone) -> tuple[str, ...]:
    """The parameters by which the change may move data, in the order of their list; empty: it moves none."""
    placed = [name for name in PLACED if getattr(before, name) != getattr(after, name)]
    return (*placed, *(name for name in TIMERS if getattr(after, name) < getattr(before, name)))


def check_rebalancing(change: Change, *, allowed: bool) -> None:
    """Refuses a change that may move data while rebalancing is not ``allowed``. A new zone has no data yet, and
    a dropped one moves none."""
    if allowed or change.before is None or change.after is None or not change.entries:
        return
    names = moves_data(change.before, change.after)
    if names:
        settings = ", ".join(name.upper().replace("_", " ") for name in names)
        raise rebalancing_disabled(f"a new {settings} of zone {change.after.name} moves its data")


def rebalancing_disabled(what: str) -> RefusedError:
    """``what`` moves data, as a whole sentence without its full stop."""
    message = f"{what}, and rebalancing is turned off: `zonectl rebalance limits --rebalancing` turns it on"
    return RefusedError(ErrorKind.REBALANCING_DISABLED, message)
