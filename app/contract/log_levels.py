"""Levels of log lines."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypedDict

from app.contract.columns import Moment, Named
from app.contract.marks import About, OneOf
from app.core.log_levels import LineLevel

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
