"""Nodes: what lives, what is leaving, and what would be lost if one stopped."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from app.contract.columns import Moment, Named
from app.contract.marks import About
from app.contract.zones import AsOf


class DrainBody(TypedDict):
    """A node that is leaving; DRAINED: it holds no member and no copy any more."""

    state: Annotated[
        Literal["DRAINING", "DRAINED"],
        Named("DRAINED: it holds no member and no copy any more", "DRAIN_STATE", sums=True),
    ]
    by: str
    reason: str
    since: Annotated[Moment, Named(of="since_ms")]


class NodeBody(TypedDict):
    name: Annotated[str, Named("name of the node", "NODE_NAME", title="Node")]
    alive: Annotated[bool, Named("its lease lives", "IS_ALIVE")]
    attributes: Annotated[dict[str, str], Named("what filters match", "ATTRIBUTES", "node.attributes")]
    profiles: Annotated[
        list[str], Named("all that it has", "STORAGE_PROFILES", "node.profiles", title="Storage profiles")
    ]
    member_limit: Annotated[
        int | None, Named("members and learners at most", "MEMBER_LIMIT", "node.member_limit", title="Limit")
    ]
    weight: Annotated[float | None, Named("share of balanced zones, of 1 elsewhere", "WEIGHT", "node.weight")]
    failure_domain: Annotated[
        str | None,
        Named("empty: a domain of its own", "FAILURE_DOMAIN", "node.failure_domain", keeps_empty=True),
    ]
    members: Annotated[
        int | None, Named("of all zones; null: the caller does not see all of them", "MEMBERS", sums=True)
    ]
    copies: Annotated[
        int | None,
        Named(
            "of partitions of store zones, which have no members; null as `members` is",
            "STORE_COPIES",
            sums=True,
        ),
    ]
    pid: Annotated[int | None, Named("process of its agent", "PID")]
    drain: Annotated[DrainBody | None, Named("null: it is not leaving")]


class Nodes(AsOf):
    nodes: list[NodeBody]


class DrainResult(TypedDict):
    node: str
    changed: Annotated[bool, About("false: it already was")]
    members: Annotated[
        int | None, About("members that the node holds now; null: the caller does not see all zones")
    ]
    copies: Annotated[
        int | None, About("of partitions of store zones, which have no members; null as `members` is")
    ]
    drain: NotRequired[DrainBody | None]


class LossBody(TypedDict):
    zone: str
    zone_id: int
    partition: int
    loss: Annotated[
        str, Named("LAST_COPY, MAJORITY, or LEADER, which does not prevent stopping", title="Would lose")
    ]
    detail: Annotated[str, Named(title="Details")]


class NodeRemoval(TypedDict):
    node: str
    state: Annotated[
        Literal["PLANNED", "DRAINING", "REMOVED"],
        About("PLANNED: a dry run; DRAINING: `zones` still need the node, repeat the request once they do not"),
    ]
    zones: Annotated[
        dict[str, int],
        About("zones that still need the node, with the number of their replicas to be rebuilt on other nodes"),
    ]
    losses: Annotated[dict[str, int], About("partitions that need the node, by what they would lose")]
    partitions: Annotated[list[LossBody], About("the first thousand of them")]


class StopVerdict(TypedDict):
    node: str
    can_stop: Annotated[
        bool,
        About(
            "no partition would lose its majority or its last running copy; false, too,"
            " while the metastore is silent"
        ),
    ]
    members: int
    copies: Annotated[int, About("of partitions of store zones, which have no members")]
    losses: Annotated[dict[str, int], About("partitions by what they would lose")]
    partitions: Annotated[list[LossBody], About("the first thousand of them")]


class CanStop(StopVerdict, AsOf):
    alive: bool
    drain: DrainBody | None
