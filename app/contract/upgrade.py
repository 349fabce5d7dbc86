"""What runs, of which builds, and what finalising an upgrade brings."""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import TypedDict

from app.contract.marks import About


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
