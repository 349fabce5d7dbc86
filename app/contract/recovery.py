"""Health of partitions, and what a recovery does."""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import TypedDict

from app.contract.marks import About, OneOf
from app.contract.zones import AsOf, Roles, Since
from rebalance.core.keyspace.records import MemberState
from rebalance.core.moves.partition_state import GlobalState, LocalState
from rebalance.core.recovery.recovery_plan import CandidateKind

UNKNOWN, SERVING, NOT_SERVING = "UNKNOWN", "SERVING", "NOT_SERVING"
"""States that are reported while the metastore is silent."""


class ReplicaState(TypedDict):
    node: str
    state: Annotated[str, OneOf(LocalState, UNKNOWN)]
    voter: Annotated[
        bool,
        About(
            "votes in the configuration that the group has committed; in a zone of store servers: is in sync"
        ),
    ]
    committed: Annotated[int | None, About("log index that the copy knows to be decided; while leaderless")]
    last: Annotated[int | None, About("newest log index of the copy; while leaderless")]
    reason: str


class PositionBody(TypedDict):
    """Position of a log, as in ``ReplicaState`` and ``CandidateBody``."""

    committed: int | None
    last: int | None


class PartitionStateBody(TypedDict):
    partition: int
    state: Annotated[
        str,
        OneOf(GlobalState, SERVING, NOT_SERVING, UNKNOWN),
        About(
            "the last three while the metastore does not respond: whether the members answer; UNKNOWN: not "
            "asked in the last seconds"
        ),
    ]
    since: Since
    advice: Annotated[
        str,
        About(
            "what to do about a partition that takes no writes; a reset is suggested only when all nodes that "
            "it waits for have been without a lease for a minute"
        ),
    ]
    voters: int
    voters_alive: int
    generation: Annotated[int, About("0 until the group is founded anew by a reset")]
    recovering_on: Annotated[str | None, About("the node on which a reset founds the group now")]
    restarting: Annotated[list[str], About("nodes whose members are yet to restart")]
    replicas: list[ReplicaState]


class PartitionStates(AsOf):
    zone: str
    zone_id: int
    partitions: list[PartitionStateBody]


class CandidateBody(TypedDict):
    """A copy of the partition on a living node."""

    node: str
    kind: Annotated[
        Annotated[str, OneOf(CandidateKind)],
        About("JOINER: a member that was catching up to vote; KEPT: of a member that has left"),
    ]
    revision: Annotated[int | None, About("revision of its data, which copies are compared by; null: unknown")]
    generation: Annotated[int | None, About("of the group that the data is of; null: not known")]
    state: Annotated[str, OneOf(MemberState, "KEPT")]
    usable: Annotated[bool, About("the best of these is used")]
    by_name: Annotated[bool, About("used only where `from` names its node")]
    reason: Annotated[str, About("why it is not usable; empty: it is")]
    committed: Annotated[int | None, About("log index that it knows to be decided; null: it has no log")]
    last: Annotated[int | None, About("newest log index of the copy")]


class RefusalBody(TypedDict):
    name: str
    code: int
    detail: str


class ResetBody(TypedDict):
    partition: int
    written: Annotated[bool, About("accepted; the group is being founded anew")]
    survivor: Annotated[str | None, About("null: refused")]
    then: Annotated[Roles | None, About("what the group becomes after that; null: it stays alone")]
    empty: Annotated[bool, About("it starts without data: all data of the partition is lost")]
    possibly_lost_entries: Annotated[
        int | None,
        About("`missed_revisions`, and log entries of the survivor that it does not know to be decided"),
    ]
    missed_revisions: Annotated[
        int | None, About("between the survivor's revision and the highest that any copy has told")
    ]
    orderly: Annotated[
        bool | None,
        About(
            "true: its process lives, is stopped in order, and what it knows to be decided "
            "survives; null: the survivor has no log"
        ),
    ]
    candidates: Annotated[list[CandidateBody], About("every copy on a living node, the best first")]
    silent: Annotated[list[str], About("nodes that have not reported the extent of their copy yet")]
    to_confirm: Annotated[
        list[str],
        About("nodes that `confirm_dead` must name: those of absent voters in STRONG_CONSISTENCY zones"),
    ]
    unproven: Annotated[
        dict[str, str],
        About("nodes with a copy whose etcd may lose data in a crash (3.5.0 to 3.5.2), and its version"),
    ]
    refusal: RefusalBody | None


class Resets(TypedDict):
    zone: str
    dry_run: bool
    partitions: list[ResetBody]


class RestartBody(TypedDict):
    partition: int
    nodes: list[str]
    cleanup: bool


class Restarts(TypedDict):
    zone: str
    dry_run: bool
    partitions: list[RestartBody]


class LossResetBody(TypedDict):
    partition: int
    outcome: Annotated[
        Literal["OWNED", "LOST", "WAITING", "REQUESTED"],
        About(
            "REQUESTED: its exchange goes on; LOST: a server of the in-sync set was lost meanwhile; WAITING: "
            "no server of its target is up"
        ),
    ]
    owners: list[str]
    exchange: Annotated[str, About("version of the exchange, as in SYSTEM.EXCHANGES")]
    detail: str


class LossResets(TypedDict):
    zone: str
    partitions: list[LossResetBody]
