"""Kinds of cut: what is cut from what, and when. Roles are of one partition that the case is about; who has
which one is known only when the moment has come.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """A set of sites. LEADER, FOLLOWERS and NEXT (one of these) are the partition's voters; JOINER is the node
    that becomes a voter, LEAVER the one that ceases to be one. The halves: the leader's node alone with the
    controller and one member of the metastore, and everything else."""

    LEADER = "LEADER"
    FOLLOWERS = "FOLLOWERS"
    NEXT = "NEXT"
    JOINER = "JOINER"
    LEAVER = "LEAVER"
    NODES = "NODES"
    OTHER_NODES = "OTHER_NODES"
    """All but LEAVER."""
    STORES = "STORES"
    STORE_LEADER = "STORE_LEADER"
    STORE_FOLLOWERS = "STORE_FOLLOWERS"
    STORE_FOLLOWER = "STORE_FOLLOWER"
    CONTROLLER = "CONTROLLER"
    SERVER = "SERVER"
    CLIENTS = "CLIENTS"
    """At ``HERE``; the server's own way to the groups is another one."""
    SMALLER_HALF = "SMALLER_HALF"
    LARGER_HALF = "LARGER_HALF"


class Moment(Enum):
    """BEFORE: the move is asked for once the links are cut; RESERVED: the joiner has a member, which the group
    does not list; COPYING: it is listed, and learns; PROMOTING: it is in sync, and pending is locked for its
    promotion; LEAVING: a voter is announced as about to be removed."""

    AT_REST = "AT_REST"
    BEFORE = "BEFORE"
    RESERVED = "RESERVED"
    COPYING = "COPYING"
    PROMOTING = "PROMOTING"
    LEAVING = "LEAVING"


@dataclass(frozen=True, slots=True)
class Cut:
    """Between each site of ``source`` and each other one of ``destination``."""

    source: Role
    destination: Role
    one_way: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """``stopped``: members of the metastore that are killed for as long, and no link is cut. ``flapping``: the
    links are whole and cut in turns. ``slow``: the joiner's cable is, before the move and during it."""

    name: str
    cuts: tuple[Cut, ...] = ()
    moment: Moment = Moment.AT_REST
    stopped: Role | None = None
    flapping: bool = False
    slow: bool = False


def _both(source: Role, destination: Role) -> tuple[Cut, ...]:
    return (Cut(source, destination),)


def _one_way(source: Role, destination: Role) -> tuple[Cut, ...]:
    return (Cut(source, destination, one_way=True),)


KINDS = (
    Kind("leader_from_followers", _both(Role.LEADER, Role.FOLLOWERS)),
    Kind("leader_to_followers", _one_way(Role.LEADER, Role.FOLLOWERS)),
    Kind("followers_to_leader", _one_way(Role.FOLLOWERS, Role.LEADER)),
    Kind("leader_from_one_follower", _both(Role.LEADER, Role.NEXT)),
    Kind("followers_from_each_other", _both(Role.FOLLOWERS, Role.FOLLOWERS)),
    Kind("leader_from_metastore", _both(Role.LEADER, Role.STORES)),
    Kind("leader_to_metastore", _one_way(Role.LEADER, Role.STORES)),
    Kind("follower_from_metastore", _both(Role.NEXT, Role.STORES)),
    Kind("metastore_to_follower", _one_way(Role.STORES, Role.NEXT)),
    Kind("nodes_from_metastore", _both(Role.NODES, Role.STORES)),
    Kind("clients_from_leader", _both(Role.CLIENTS, Role.LEADER)),
    Kind("leader_to_clients", _one_way(Role.LEADER, Role.CLIENTS)),
    Kind("metastore_leader_from_followers", _both(Role.STORE_LEADER, Role.STORE_FOLLOWERS)),
    Kind("metastore_leader_to_followers", _one_way(Role.STORE_LEADER, Role.STORE_FOLLOWERS)),
    Kind("controller_from_metastore", _both(Role.CONTROLLER, Role.STORES)),
    Kind("server_from_metastore", _both(Role.SERVER, Role.STORES)),
    Kind("two_halves", _both(Role.SMALLER_HALF, Role.LARGER_HALF)),
    Kind("flapping_leader", _both(Role.LEADER, Role.FOLLOWERS), flapping=True),
    Kind("joiner_from_leader_before", _both(Role.JOINER, Role.LEADER), Moment.BEFORE),
    Kind("leader_from_metastore_before", _both(Role.LEADER, Role.STORES), Moment.BEFORE),
    Kind("server_from_metastore_before", _both(Role.SERVER, Role.STORES), Moment.BEFORE),
    Kind("metastore_member_stopped", stopped=Role.STORE_FOLLOWER),
    Kind("metastore_leader_stopped", stopped=Role.STORE_LEADER),
    Kind("metastore_stopped", stopped=Role.STORES),
    Kind("two_halves_while_reserved", _both(Role.SMALLER_HALF, Role.LARGER_HALF), Moment.RESERVED),
    Kind("joiner_from_leader_while_copying", _both(Role.JOINER, Role.LEADER), Moment.COPYING, slow=True),
    Kind("joiner_to_leader_while_copying", _one_way(Role.JOINER, Role.LEADER), Moment.COPYING, slow=True),
    Kind(
        "metastore_leader_while_copying",
        _both(Role.STORE_LEADER, Role.STORE_FOLLOWERS),
        Moment.COPYING,
        slow=True,
    ),
    Kind("slow_joiner", moment=Moment.COPYING, slow=True),
    Kind("leader_from_followers_while_promoting", _both(Role.LEADER, Role.FOLLOWERS), Moment.PROMOTING),
    Kind("leader_from_metastore_while_promoting", _both(Role.LEADER, Role.STORES), Moment.PROMOTING),
    Kind("joiner_from_leader_while_promoting", _both(Role.JOINER, Role.LEADER), Moment.PROMOTING),
    Kind("leaver_from_others_while_leaving", _both(Role.LEAVER, Role.OTHER_NODES), Moment.LEAVING),
    Kind("metastore_stopped_while_leaving", moment=Moment.LEAVING, stopped=Role.STORES),
)
