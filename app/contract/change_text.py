"""Text of what a statement changed, as people read it: one for the CLI's table and the console's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NO_LIMIT = 2_147_483_647
CHANGE_COLUMNS = ("n", "operation", "zone", "applied", "version", "parameters")


def change_cells(result: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells below CHANGE_COLUMNS of a statement without rows, as the API answers it."""
    effect = result.get("effect") or {}
    version = result.get("catalog_version")
    params = {name: value for name, value in effect.items() if name not in ("op", "zone", "params")}
    return (
        str(result.get("n", "")),
        str(effect.get("op", "")),
        str(effect.get("zone", "")),
        "yes" if result.get("applied") else "no",
        "" if version is None else str(version),
        describe_params({**params, **(effect.get("params") or {})}),
    )


def describe_params(params: Mapping[str, Any]) -> str:
    """``partitions=8 replicas=3``: the largest integer reads ALL for replicas and OFF for a timer."""
    return " ".join(f"{name}={_param(name, value)}" for name, value in params.items())


def _param(name: str, value: Any) -> str:
    if value == NO_LIMIT and not isinstance(value, bool):
        return "ALL" if name == "replicas" else "OFF"
    if isinstance(value, Mapping):
        return f"({describe_params(value)})"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
