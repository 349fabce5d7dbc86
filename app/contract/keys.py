"""Keys and values, the replica that answers a read, the routing of keys, and samples of copies."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from app.contract.marks import About

TIMEOUT_FIELD = "Zonekeeper-Timeout"
"""Header: seconds that the caller waits."""
TIMEOUT_MAX_S = 60.0
ABANDONS_FIELD = "Zonekeeper-Abandons"
"""Header: operation ids of earlier writes of the key whose outcome the caller was not told, and gives up."""


class PutResult(TypedDict):
    zone: str
    key: str
    partition: int
    operation_id: str
    repeated: Annotated[bool, About("a request with this operation id had already been applied")]
    revision: Annotated[int, About("of the partition's group, at which it was carried out")]


class GetResult(TypedDict):
    zone: str
    key: str
    partition: int
    value: str
    revision: Annotated[int, About("of the partition's group, at which the key was put")]
    read_revision: NotRequired[
        Annotated[int | None, About("of a read from a replica: the revision that it had reached")]
    ]
    safe_time: NotRequired[
        Annotated[str | None, About("of a read from a replica: how new it is; null: unknown")]
    ]
    replica: NotRequired[Annotated[str | None, About("of a read from a replica: its address")]]


class RoutedPartition(TypedDict):
    partition: int
    voters: Annotated[
        list[str],
        About("client URLs, the preferred one first; of store servers those of the owners"),
    ]
    generation: Annotated[
        int | None,
        About(
            "of the group: 0, and a higher one after each reset; members of another one refuse "
            "puts; null: not known"
        ),
    ]


class RoutingMapBody(TypedDict):
    zone: str
    zone_id: int
    key_hash: Literal["murmur3-32"]
    engine: Annotated[
        str, About("what keeps the copies: etcd, with members to ask by its API; store, with store servers")
    ]
    partitions: list[RoutedPartition]
    version: Annotated[int, About("the map was right at this revision of the metastore; higher is newer")]


class SampledKey(TypedDict):
    key: str
    digest: Annotated[str | None, About("of the value that most copies have; null: none has it")]


class CheckedCopy(TypedDict):
    node: str
    role: Annotated[str, About("", examples=["VOTER", "LEARNER"])]
    lacking: Annotated[list[str], About("sample keys that the copy has not")]
    different: Annotated[list[str], About("sample keys of which it has another value than most copies")]
    error: Annotated[str, About("why it was not read; empty: it was")]


class CheckedPartition(TypedDict):
    partition: int
    agrees: Annotated[bool, About("every copy was read, and all have the same")]
    wanted: Annotated[int, About("replicas that the zone asks for, as far as its data nodes go")]
    missing: Annotated[int, About("replicas that are missing and not being copied")]
    keys: list[SampledKey]
    copies: list[CheckedCopy]


class VerifyBody(TypedDict):
    zone: str
    zone_id: int
    seed: int
    agrees: bool
    partitions: list[CheckedPartition]


class ReadFrom(Enum):
    LEADER = "leader"
    LEARNER = "learner"
    REPLICA = "replica"
