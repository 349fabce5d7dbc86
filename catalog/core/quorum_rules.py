"""Refusals of a QUORUM SIZE (IEP-022..026; decisions 1-3). Each conflict has a code of its own."""

from __future__ import annotations

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import AlterZone, CreateZone, ZoneOption
from catalog.core.quorum import ALL_REPLICAS, quorum_bounds
from catalog.core.zone_options import clause_position, shown_value


def shown_replicas(replicas: int) -> str:
    return "ALL" if replicas == ALL_REPLICAS else str(replicas)


def check_bounds(command: CreateZone | AlterZone, quorum: int, replicas: int) -> None:
    """An explicit quorum against the declared replicas: raised, never clamped."""
    lowest, highest = quorum_bounds(replicas)
    if lowest <= quorum <= highest:
        return
    bounds = str(lowest) if lowest == highest else f"from {lowest} to {highest}"
    written = shown_value(command, ZoneOption.QUORUM_SIZE, quorum)
    message = f"with REPLICAS {shown_replicas(replicas)} QUORUM SIZE must be {bounds}, not {written}"
    kind = ErrorKind.QUORUM_BELOW_MINIMUM if quorum < lowest else ErrorKind.QUORUM_ABOVE_MAXIMUM
    raise RefusedError(kind, message, clause_position(command, ZoneOption.QUORUM_SIZE))


def check_stored_quorum(command: AlterZone, stored: int, replicas: int) -> None:
    """An ALTER of REPLICAS alone must leave the zone's explicit quorum within its bounds (decision 3)."""
    lowest, highest = quorum_bounds(replicas)
    if lowest <= stored <= highest:
        return
    bounds = str(lowest) if lowest == highest else f"from {lowest} to {highest}"
    message = (
        f"the zone has QUORUM SIZE {stored}, and REPLICAS {shown_replicas(replicas)} allows {bounds}: "
        f"alter both, as in SET (REPLICAS {shown_replicas(replicas)}, QUORUM SIZE {lowest})"
    )
    position = clause_position(command, ZoneOption.REPLICAS)
    raise RefusedError(ErrorKind.QUORUM_CONFLICTS_WITH_REPLICAS, message, position)


def check_data_nodes(command: CreateZone | AlterZone, quorum: int, data_nodes: int) -> None:
    """A quorum that a statement names must be possible now (IEP-025).

    So must the zone's own, when the statement leaves it fewer nodes: ``check_kept_quorum``. Nodes that leave
    later override a stored quorum, and never refuse a statement about something else (IEP-061).
    """
    if quorum <= data_nodes:
        return
    message = f"QUORUM SIZE {quorum} needs {quorum} data nodes, but {_matching(data_nodes)} now"
    position = clause_position(command, ZoneOption.QUORUM_SIZE)
    raise RefusedError(ErrorKind.QUORUM_EXCEEDS_DATA_NODES, message, position)


def check_kept_quorum(command: AlterZone, quorum: int, before: int, after: int) -> None:
    """An ALTER that does not name the zone's explicit ``quorum`` leaves it possible: of ``before`` data nodes
    with the options until now, ``after`` match."""
    if quorum <= after or before <= after:
        return
    message = (
        f"the zone has QUORUM SIZE {quorum}, which needs {quorum} data nodes, but {_matching(after)} then "
        f"and {before} now: alter QUORUM SIZE as well, or match more nodes"
    )
    position = clause_position(command, ZoneOption.NODES_FILTER)
    raise RefusedError(ErrorKind.QUORUM_EXCEEDS_DATA_NODES, message, position)


def _matching(data_nodes: int) -> str:
    return "1 data node matches" if data_nodes == 1 else f"{data_nodes} data nodes match"
