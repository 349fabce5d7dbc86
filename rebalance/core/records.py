"""What nodes and members say of themselves in the metastore: small JSON documents with a version field.

Who writes what: a node writes its own ``nodes/<name>`` (under its lease) and its own ``members/...`` keys; the
agent beside a group's leader writes ``partition/.../configuration``; the first agent that sees every initial
member reserved writes ``partition/.../group``, once.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Self

from catalog.core.zone import DEFAULT_ENGINE, Node

RECORD_FORMAT = 1


def _encode(document: dict[str, Any]) -> bytes:
    return json.dumps({"v": RECORD_FORMAT, **document}, ensure_ascii=False, separators=(",", ":")).encode()


def _decode(value: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(value)
    if document.pop("v") != RECORD_FORMAT:
        raise ValueError(f"record format is not known; this build reads {RECORD_FORMAT}: {value[:80]!r}")
    return document


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A living node; the key goes with its lease. ``incarnation`` is new at each start of the node process."""

    node: Node
    incarnation: str
    pid: int = 0

    def encode(self) -> bytes:
        return _encode({**node_fields(self.node), "incarnation": self.incarnation, "pid": self.pid})

    @classmethod
    def decode(cls, value: bytes) -> Self:
        found = _decode(value)
        return cls(node_from(found), found["incarnation"], found["pid"])


def node_fields(node: Node) -> dict[str, Any]:
    """What a node says of itself, as JSON fields; ``node_from`` reads them."""
    engines = {"engines": dict(node.engines)} if node.engines else {}
    return {
        **engines,
        "name": node.name,
        "attributes": dict(node.attributes),
        "profiles": node.profiles,
        "member_limit": node.member_limit,
        "weight": node.weight,
        "failure_domain": node.failure_domain,
    }


def node_from(found: dict[str, Any]) -> Node:
    """Weight, failure domain and engines may be missing: they came later than the rest."""
    return Node(
        found["name"],
        tuple(sorted(found["attributes"].items())),
        tuple(found["profiles"]),
        found["member_limit"],
        found.get("weight", 1.0),
        found.get("failure_domain", ""),
        tuple(sorted(found.get("engines", {}).items())),
    )


class MemberState(Enum):
    """Life of one replica's member process, as its own node sees it."""

    READY = "READY"  # directory and ports are reserved; the process waits for its configuration
    STARTING = "STARTING"  # the process runs but does not answer yet
    RUNNING = "RUNNING"  # it answers
    FAILED = "FAILED"  # it cannot be started; ``reason`` says why, and the node goes on trying
    NONE = "NONE"  # there is no member here: the node keeps a mirror only


class MemberRole(Enum):
    VOTER = "VOTER"
    LEARNER = "LEARNER"


class Stage(Enum):
    """Where a group's reconfiguration is. CATCHING_UP: a learner was added, nothing promoted or removed.
    JOINT: from the first promote or remove until the member list is the target. STABLE: it is the target, and
    the stable key is not switched yet."""

    NONE = "NONE"
    CATCHING_UP = "CATCHING_UP"
    JOINT = "JOINT"
    STABLE = "STABLE"


@dataclass(frozen=True, slots=True)
class MirrorRecord:
    """A standing learner's copy on one node. READY: it waits for the group's voters; STARTING: the first copy
    is fetched; RUNNING: it may be read up to ``safe_revision`` at least (``rounded_revision``)."""

    state: MemberState
    client_url: str = ""
    safe_revision: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far a copy goes, as indexes of its group's log. ``committed``: up to here the copy knows that the
    group has decided, and a reset keeps it; ``last``: its newest entry. What lies between may have been
    acknowledged by members that are lost now. ``orderly``: the process lives, so it can write down all it knows
    first."""

    committed: int
    last: int
    orderly: bool

    @property
    def undecided(self) -> int:
        """Entries that a reset drops: possibly lost writes (decision 19)."""
        return max(self.last - self.committed, 0)


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """One replica on one node. URLs stay the same for the life of the member (they are in its membership).

    A node has a member and a mirror of one partition while its role changes, so one record speaks of both;
    state NONE: of a mirror alone.
    """

    state: MemberState
    peer_url: str
    client_url: str
    started: bool = False
    """True once the process was started with data of its own: an empty directory is a loss then."""
    reason: str = ""
    mirror: MirrorRecord | None = None
    position: LogPosition | None = None
    """Published while the group has no leader: what a recovery chooses by."""

    @classmethod
    def of_mirror(cls, mirror: MirrorRecord) -> Self:
        """The node holds no member of the partition."""
        return cls(MemberState.NONE, "", "", mirror=mirror)

    @property
    def has_member(self) -> bool:
        return self.state is not MemberState.NONE

    @property
    def is_mirroring(self) -> bool:
        """A mirror runs, so a learner's copy is here."""
        return self.mirror is not None and self.mirror.state is MemberState.RUNNING

    def encode(self) -> bytes:
        document = {**asdict(self), "state": self.state.value}
        if self.position is None:
            del document["position"]
        if self.mirror is None:
            del document["mirror"]
        else:
            document["mirror"]["state"] = self.mirror.state.value
        return _encode(document)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        found = _decode(value)
        mirror = found.pop("mirror", None)
        if mirror is not None:
            mirror = MirrorRecord(**{**mirror, "state": MemberState(mirror["state"])})
        position = LogPosition(**found["position"]) if found.get("position") else None
        return cls(**{**found, "state": MemberState(found["state"]), "position": position}, mirror=mirror)


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The first configuration of a group, frozen by put-if-absent: node -> peer URL, and the cluster token.

    A recovery writes it anew, with a higher ``generation`` (``Assignments.forced``): members of an earlier one
    belong to a group that was given up, and never run again.
    """

    token: str
    peers: dict[str, str]
    generation: int = 0
    engine: str = DEFAULT_ENGINE
    """What keeps the members; a node whose profile names another one has no place in the group."""

    def encode(self) -> bytes:
        fields = asdict(self)
        if self.engine == DEFAULT_ENGINE:
            del fields["engine"]  # as builds wrote it that knew no other
        return _encode(fields)

    @classmethod
    def decode(cls, value: bytes) -> Self:
        return cls(**_decode(value))


@dataclass(frozen=True, slots=True)
class ConfiguredMember:
    """A member as the group's own committed configuration lists it."""

    member_id: str
    role: MemberRole
    peer_url: str
    leaving: bool = False
    """About to be removed: clients turn elsewhere before it goes."""


@dataclass(frozen=True, slots=True)
class ConfigurationRecord:
    """What the group has committed, as published by the agent beside its leader after each step."""

    term: int
    leader: str
    stage: Stage
    members: dict[str, ConfiguredMember] = field(default_factory=dict)
    reason: str = ""
    """Why the running change does not go on at the moment; empty when it does."""
    size_bytes: int = 0
    """What a copy takes on disk, rounded (``rounded_size``); 0 until it is known."""
    generation: int = 0
    """Of the group that committed it; terms are compared within one generation."""

    def encode(self) -> bytes:
        members = {name: {**asdict(each), "role": each.role.value} for name, each in self.members.items()}
        return _encode({**asdict(self), "stage": self.stage.value, "members": members})

    @classmethod
    def decode(cls, value: bytes) -> Self:
        found = _decode(value)
        members = {
            name: ConfiguredMember(**{**each, "role": MemberRole(each["role"])})
            for name, each in found["members"].items()
        }
        return cls(
            found["term"],
            found["leader"],
            Stage(found["stage"]),
            members,
            found["reason"],
            found.get("size_bytes", 0),
            found.get("generation", 0),
        )


@dataclass(frozen=True, slots=True)
class RestartRecord:
    """A member is asked to stop and start; its node deletes the key when it has. ``cleanup``: on new data."""

    cleanup: bool

    def encode(self) -> bytes:
        return _encode(asdict(self))

    @classmethod
    def decode(cls, value: bytes) -> Self:
        return cls(**_decode(value))


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A node keeps the copy of a member that has left its group. ``event``: of the operation that it left by;
    ``peer_url``: of that member, so that a later one is never taken for it; ``discard``: somebody has finalised
    it, the node deletes the copy and then this key."""

    event: int
    peer_url: str
    discard: bool = False

    def encode(self) -> bytes:
        return _encode(asdict(self))

    @classmethod
    def decode(cls, value: bytes) -> Self:
        return cls(**_decode(value))


def rounded_size(size_bytes: int) -> int:
    """Up to the next number with two significant bits, so that a growing group is published a few times and not
    each second."""
    step = 1 << max(size_bytes.bit_length() - 2, 0)
    return -(-size_bytes // step) * step


def rounded_revision(revision: int) -> int:
    """Down to the last number with two significant bits: a mirror that follows is published twice each time
    that its group's revision doubles, and what is published is never too much."""
    step = 1 << max(revision.bit_length() - 2, 0)
    return revision // step * step
