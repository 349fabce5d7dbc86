"""Maintenance of an installation: what runs, of which builds, and what finalising an upgrade brings; whether
catalog and metastore belong together; levels of log lines; what Prometheus reads besides what is measured.
"""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import TypedDict

from app.contract.columns import Moment, Named
from app.contract.marks import About, OneOf
from app.core.log_levels import LineLevel
from rebalance.core.keyspace.epoch import DivergenceKind


class BuildBody(TypedDict):
    name: Annotated[str, About("of the process, as metrics and alerts name it")]
    role: Annotated[str, About('"server", "controller" or "node"; a store server is its node\'s')]
    version: Annotated[str, About("empty: it registers none")]
    commit: Annotated[str, About("empty: not known")]
    level: Annotated[int, About("the release level of its build; 0: it knows of none, as 0.2.0")]


class StepBody(TypedDict):
    process: Annotated[str, About("process to restart in the newest version")]
    role: str
    version: Annotated[str, About("that runs")]
    may_go: Annotated[bool, About("it can be stopped now, and nothing has to be replaced before it")]
    why_not: Annotated[str, About("empty: it may go")]


class UpgradeBody(TypedDict):
    state: Annotated[
        Literal["MIXED", "READY", "FINALISED"],
        About(
            "MIXED: processes of a lower release level run, or did a moment ago; READY: the level can be "
            "finalised; FINALISED: it is in force"
        ),
    ]
    version: Annotated[str, About("the newest that runs")]
    level_in_force: Annotated[
        int, About("level of the formats written now: every process of at least this level reads them")
    ]
    level: Annotated[int, About("of the server that answers, which finalising brings into force")]
    processes: list[BuildBody]
    steps: Annotated[list[StepBody], About("processes of earlier versions, in the order to replace them")]
    hindrances: Annotated[list[str], About("why the level cannot be finalised yet")]
    inactive: Annotated[list[str], About("features that need the level to be finalised")]
    refused: Annotated[
        list[str], About("processes that run and are below the level in force: they write nothing")
    ]
    strays: Annotated[
        list[str],
        About("members of groups that builds before 0.2.0 founded in store zones"),
    ]


class FinalisedBody(TypedDict):
    finalised: Annotated[bool, About("false: the level was in force")]
    level_in_force: int


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


LevelName = Annotated[str, OneOf(LineLevel)]


class LevelChange(TypedDict):
    module: Annotated[str, About("module, with its submodules", examples=["rebalance.nodes"])]
    level: LevelName
    since: Annotated[Moment, Named(of="since_ms")]
    until: Annotated[Moment, Named("UTC; then the module has its default again", of="until_ms")]
    by: str
    reason: str


class LogLevels(TypedDict):
    defaults: Annotated[dict[str, str], About("level by module, where it is not changed")]
    others: Annotated[LevelName, About("default level of modules that are not listed")]
    changes: Annotated[list[LevelChange], About("changes in force")]


class LevelReset(TypedDict):
    module: str
    changed: Annotated[bool, About("false: it already had its default")]


class ScrapeTarget(TypedDict):
    """One process, in the form of Prometheus's HTTP service discovery."""

    targets: Annotated[list[str], About("host and port; one")]
    labels: Annotated[
        dict[str, str], About("scheme and path of the address, and the name and role of the process")
    ]
