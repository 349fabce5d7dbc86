"""Whether catalog and metastore belong together."""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import TypedDict

from app.contract.marks import About, OneOf
from rebalance.core.keyspace.epoch import DivergenceKind

DivergenceName = Annotated[str, OneOf(DivergenceKind, "")]


class MetastoreState(TypedDict):
    state: Annotated[Literal["AGREED", "DIVERGED", "FULL"], About("statements are accepted only while AGREED")]
    kind: DivergenceName
    reason: Annotated[str, About("why writes are stopped; empty: they are not")]
    epoch: Annotated[int, About("1, and one more with each adoption")]
    revision: Annotated[int, About("revision of etcd when it was compared")]
    cluster_id: Annotated[str, About("etcd's")]
    catalog_version: int


class AdoptionBody(TypedDict):
    adopted: Annotated[bool, About("false: both stores agreed, and nothing was done")]
    epoch: int
    catalog_version: Annotated[int, About("the version that publishes every zone again")]
    published: Annotated[int, About("zones whose intents were published again, the dropped ones included")]
    dropped: Annotated[list[str], About("zones that only etcd knew; their data is removed")]
