"""Limits of today's data nodes, apart from what a zone may be at all.

Kept out of ``apply_command`` on purpose: a statement that these checks refuse is a good statement, and a check
of a script without a cluster leaves them out.
"""

from __future__ import annotations

from collections.abc import Mapping

from catalog.core.authorisation import Caller, Grants
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.messages import AlterZone, CreateZone, Position, PrincipalCommand, ZoneOption
from catalog.core.principals import ALL_ZONES, Privilege
from catalog.core.snapshot import Change, Topology
from catalog.core.zone import Zone
from catalog.core.zone_options import clause_position


class MemberLimitError(RefusedError):
    """NODE_MEMBER_LIMIT. Its message counts replicas of all zones; ``message_without_sums`` is for who does not
    see all of them."""

    def __init__(self, message: str, message_without_sums: str, position: Position | None) -> None:
        super().__init__(ErrorKind.NODE_MEMBER_LIMIT, message, position)
        self.message_without_sums = message_without_sums


def error_for(caller: Caller | None, grants: Grants, error: Exception) -> Exception:
    """The error as ``caller`` may know it: without sums over zones, for who does not see all of them."""
    if not isinstance(error, MemberLimitError) or caller is None:
        return error
    if caller.may(grants, Privilege.SEE, ALL_ZONES):
        return error
    return RefusedError(error.kind, error.message_without_sums, error.position, error.statement)


def check_member_limits(
    change: Change, topology: Topology, existing: Mapping[str, int], added: Mapping[str, int]
) -> None:
    """Refuses a change that would put more members on a node than it can hold; a learner's mirror is a process
    as a member is, and counts as one.

    ``existing`` counts the members that each node holds without this zone, ``added`` those that the change
    would put there; a node that a mapping leaves out has none. The node with the least room is named, with what
    would fit.
    """
    zone = change.after
    if zone is None or not change.entries:
        return
    crowded = [
        (node.member_limit - existing.get(node.name, 0) - added.get(node.name, 0), node)
        for node in topology
        if added.get(node.name, 0) > 0
    ]
    over, node = min(crowded, key=lambda pair: (pair[0], pair[1].name), default=(0, None))
    if node is None or over >= 0:
        return
    held, more = existing.get(node.name, 0), added[node.name]
    room = max(0, node.member_limit - held)
    message = (
        f"node {node.name} holds {held} replicas of other zones and may hold "
        f"{node.member_limit}; zone {zone.name} would need {more} there; {_what_fits(zone, more, room)}"
    )
    position = _position(change, ZoneOption.PARTITIONS, ZoneOption.REPLICAS)
    without_sums = (
        f"node {node.name} has no room for the {more} replicas that zone {zone.name} would need there; "
        "accepted with fewer PARTITIONS or REPLICAS, or once nodes are added"
    )
    raise MemberLimitError(message, without_sums, position)


def _what_fits(zone: Zone, needed: int, room: int) -> str:
    """Partitions in proportion to the room: members grow with partitions."""
    partitions = zone.partitions * room // needed
    if partitions < 1:
        return f"there is room for {room}, so no zone fits before nodes are added"
    return f"there is room for {room}, so about PARTITIONS {partitions} fits"


def _position(change: Change, *options: ZoneOption) -> Position | None:
    command = change.command
    if isinstance(command, (CreateZone, AlterZone)):
        return clause_position(command, *options)
    return command.position if isinstance(command, PrincipalCommand) else command.name.position
