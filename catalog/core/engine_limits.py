"""What the replication engine cannot do *now*, apart from what a zone may be at all.

Kept out of ``apply_command`` on purpose: a statement that these checks refuse is a good statement, and a check
of a script without a cluster leaves them out.
"""

from __future__ import annotations

from collections.abc import Mapping

from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import AlterZone, CreateZone, Position, ZoneOption
from catalog.core.quorum import consensus_size, effective_replicas, quorum_bounds
from catalog.core.snapshot import Change, Topology
from catalog.core.zone import Zone
from catalog.core.zone_options import clause_position


def check_engine_can(change: Change, topology: Topology) -> None:
    """Refuses, as not supported yet, what the engine cannot do: zones with learners."""
    _check_learners(change)


def _check_learners(change: Change) -> None:
    """Refuses a zone whose partitions would have learners with the live data nodes: fewer voters than replicas.

    Says what would be accepted: a QUORUM SIZE where one avoids learners, else a number of replicas.
    """
    zone = change.after
    if zone is None or change.quorum is None or not change.entries:
        return
    nodes = len(change.data_nodes)
    replicas = effective_replicas(zone.replicas, nodes)
    voters = consensus_size(change.quorum, zone.replicas, nodes)
    if voters >= replicas:
        return
    message = (
        f"zone {zone.name} would have {replicas - voters} learners in each partition ({voters} voters of "
        f"{replicas} replicas), which is not supported yet; "
        f"{_without_learners(zone, replicas, nodes)} avoids them"
    )
    position = _position(change, ZoneOption.QUORUM_SIZE, ZoneOption.REPLICAS)
    raise RefusedError(ErrorKind.LEARNERS_NOT_SUPPORTED, message, position)


def _without_learners(zone: Zone, replicas: int, nodes: int) -> str:
    """The smallest quorum whose consensus group has every replica, or the nearest replicas that have one."""
    needed = replicas // 2 + 1
    _, highest = quorum_bounds(zone.replicas)
    if needed <= min(highest, nodes):
        return f"QUORUM SIZE {needed}"
    # An even number of replicas: 2q - 1 <= REPLICAS leaves one over. One fewer always fits.
    fewer = replicas - 1
    return f"REPLICAS {fewer} with QUORUM SIZE {fewer // 2 + 1}"


def spread_members(zone: Zone, data_nodes: tuple[str, ...]) -> dict[str, int]:
    """Members that each data node would hold with an even spread, rounded up: an estimate before placement."""
    replicas = effective_replicas(zone.replicas, len(data_nodes))
    if not data_nodes:
        return {}
    each = -(-zone.partitions * replicas // len(data_nodes))
    return dict.fromkeys(data_nodes, each)


def check_member_limits(
    change: Change, topology: Topology, existing: Mapping[str, int], wanted: Mapping[str, int]
) -> None:
    """Refuses a change that would put more members on a node than it can hold.

    ``existing`` counts the members that each node holds without this zone, ``wanted`` those that the change
    would put there; a node that a mapping leaves out has none. The node with the least room is named, with what
    would fit.
    """
    zone = change.after
    if zone is None or not change.entries:
        return
    crowded = [
        (node.member_limit - existing.get(node.name, 0) - wanted.get(node.name, 0), node)
        for node in topology
        if wanted.get(node.name, 0) > 0
    ]
    over, node = min(crowded, key=lambda pair: (pair[0], pair[1].name), default=(0, None))
    if node is None or over >= 0:
        return
    held, more = existing.get(node.name, 0), wanted[node.name]
    room = max(0, node.member_limit - held)
    message = (
        f"node {node.name} holds {held} replication-group members of other zones and may hold "
        f"{node.member_limit}; zone {zone.name} would need {more} there; {_what_fits(zone, more, room)}"
    )
    position = _position(change, ZoneOption.PARTITIONS, ZoneOption.REPLICAS)
    raise RefusedError(ErrorKind.NODE_MEMBER_LIMIT, message, position)


def _what_fits(zone: Zone, wanted: int, room: int) -> str:
    """Partitions in proportion to the room: members grow with partitions."""
    partitions = zone.partitions * room // wanted
    if partitions < 1:
        return f"there is room for {room}, so no zone fits before nodes are added"
    return f"there is room for {room}, so about PARTITIONS {partitions} fits"


def _position(change: Change, *options: ZoneOption) -> Position | None:
    command = change.command
    if isinstance(command, (CreateZone, AlterZone)):
        return clause_position(command, *options)
    return command.name.position
