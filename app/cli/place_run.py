"""What ``zonectl place`` does once its options are read."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.cli.exits import CliError, ExitCode, UsageError
from app.cli.output import print_rows
from app.cli.sql_source import STDIN
from app.settings import Settings
from catalog.core.quorum import ALL_REPLICAS
from catalog.core.zone import ZoneId
from rebalance.ports.placement import PlacementRequest, PlacementResult, PreviousPlacement
from spark.batch import BALANCED, place_locally
from spark.errors import PlacementError

SPARK_WAIT_S = 120.0
NODE_FIELDS = frozenset({"name", "weight", "domain"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options as given."""

    nodes: Path
    partitions: int
    replicas: str
    consensus: int | None
    algorithm: str
    previous: Path | None


@dataclass(frozen=True, slots=True)
class PlacedNode:
    name: str
    weight: float = 1.0
    domain: str = ""


def place_and_print(wanted: Wanted, spark: Settings | None, *, as_json: bool) -> int:
    """``spark`` None: in this process. Raises CliError."""
    request = _request(wanted)
    try:
        result = place_locally([request])[0] if spark is None else asyncio.run(_on_spark(request, spark))
    except PlacementError as error:
        raise CliError(ExitCode.FAILED, f"cannot be placed: {error.reason}") from error
    if as_json:
        _print_json(result)
    else:
        _print_table(request, result)
    return ExitCode.OK


def _request(wanted: Wanted) -> PlacementRequest:
    nodes = _nodes(wanted.nodes)
    balanced = wanted.algorithm == BALANCED
    if wanted.previous is not None and not balanced:
        raise UsageError("--previous is for --algorithm balanced: rendezvous does not look at what was before")
    replicas = _replicas(wanted.replicas)
    domains = tuple(node.domain for node in nodes)
    if any(domains) and not all(domains):
        raise UsageError(f"{wanted.nodes}: either every node has a domain or none")
    return PlacementRequest(
        ZoneId(0),
        tuple(node.name for node in nodes),
        wanted.partitions,
        replicas,
        replicas if wanted.consensus is None else wanted.consensus,
        wanted.algorithm,
        None if wanted.previous is None else _previous(wanted.previous, wanted.partitions),
        tuple(node.weight for node in nodes) if balanced else (),
        domains if balanced and any(domains) else (),
    )


def _replicas(text: str) -> int:
    if text.upper() == "ALL":
        return ALL_REPLICAS
    if not text.isdecimal() or not 1 <= int(text) <= ALL_REPLICAS:
        raise UsageError(f"--replicas {text}: a number from 1 on, or ALL")
    return int(text)


def _nodes(path: Path) -> list[PlacedNode]:
    found = _json(path)
    if not isinstance(found, list):
        raise UsageError(f"{path}: expected a JSON list of node names or objects, found {_kind(found)}")
    return [_node(path, at, each) for at, each in enumerate(found)]


def _node(path: Path, at: int, found: object) -> PlacedNode:
    if isinstance(found, str):
        return PlacedNode(found)
    where = f"{path}: node {at + 1}"
    if not isinstance(found, dict):
        raise UsageError(f"{where}: expected a name or an object, found {_kind(found)}")
    name, weight, domain = found.get("name"), found.get("weight", 1.0), found.get("domain", "")
    if not isinstance(name, str):
        raise UsageError(f'{where}: "name" must be a string, found {_kind(name)}')
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
        raise UsageError(f'{where}: "weight" must be a positive number, found {weight!r}')
    if not isinstance(domain, str):
        raise UsageError(f'{where}: "domain" must be a string, found {_kind(domain)}')
    return PlacedNode(name, float(weight), domain)


def _previous(path: Path, partitions: int) -> PreviousPlacement:
    found = _json(path)
    rows = found.get("assignments") if isinstance(found, dict) else None
    if not isinstance(rows, list) or len(rows) != partitions:
        count = f"{len(rows)} of them" if isinstance(rows, list) else "none"
        raise UsageError(f'{path}: expected "assignments" of {partitions} partitions, found {count}')
    try:
        names = [[str(each["node"]) for each in row] for row in rows]
        voters = {sum(bool(each["peer"]) for each in row) for row in rows}
    except (TypeError, KeyError) as error:
        raise UsageError(f'{path}: each assignment is a list of {{"node", "peer"}}') from error
    if len({len(row) for row in names}) > 1 or len(voters) > 1:
        raise UsageError(f"{path}: every partition must have as many replicas and as many peers as the others")
    known = {name: at for at, name in enumerate(dict.fromkeys(name for row in names for name in row))}
    width = len(names[0]) if names else 0
    matrix = np.array([[known[name] for name in row] for row in names], dtype=np.int32).reshape(-1, width)
    return PreviousPlacement(tuple(known), matrix, voters.pop() if voters else 1)


def _json(path: Path) -> Any:
    try:
        text = sys.stdin.read() if str(path) == STDIN else path.read_text(encoding="utf-8-sig")
        return json.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from error


def _kind(found: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", type(None): "nothing", bool: "a boolean"}
    return names.get(type(found), "a number")


async def _on_spark(request: PlacementRequest, settings: Settings) -> PlacementResult:
    from spark.engine import SparkPlacementEngine
    from spark.supervisor import DriverConfig

    with tempfile.TemporaryDirectory(prefix="zonekeeper-place-") as scratch:
        engine = SparkPlacementEngine(DriverConfig(settings.spark_master, Path(scratch)), SPARK_WAIT_S)
        await engine.start()
        try:
            (result,) = await engine.place([request])
        finally:
            await engine.close()
    if result.engine.value != "spark":
        print(f"zonectl place: engine=local: Spark was not ready: {engine.status().message}", file=sys.stderr)
    return result


def _print_json(result: PlacementResult) -> None:
    """A partition a line, so that a large answer streams."""
    cells = [
        [json.dumps({"node": name, "peer": peer}, ensure_ascii=False) for name in result.nodes]
        for peer in (False, True)
    ]
    voters = max(1, result.consensus)
    roles = [cells[column < voters] for column in range(result.matrix.shape[1])]
    write = sys.stdout.write
    write('{"assignments": [')
    for number, row in enumerate(result.matrix.tolist()):
        line = ", ".join(role[node] for role, node in zip(roles, row, strict=True))
        write(f"{',' if number else ''}\n[{line}]")
    write("\n]}\n" if len(result.matrix) else "]}\n")


def _print_table(request: PlacementRequest, result: PlacementResult) -> None:
    """What each node holds, the spread, and with a previous placement what moves."""
    matrix = result.matrix
    levels = {"REPLICAS": matrix.shape[1], "VOTERS": max(1, result.consensus), "PRIMARIES": 1}
    counts = [np.bincount(matrix[:, :width].ravel(), minlength=len(result.nodes)) for width in levels.values()]
    moved = _moved_to(request, result)
    columns = ["NODE", *levels, *(["MOVED_IN"] if moved is not None else [])]
    every = [*counts, *([moved] if moved is not None else [])]
    rows: list[Sequence[str]] = [
        [name, *(str(count[at]) for count in every)] for at, name in enumerate(result.nodes)
    ]
    if result.nodes:
        spread = [str(int(np.ptp(count))) for count in counts]
        rows.append(["max - min", *spread, *([""] if moved is not None else [])])
    print_rows(columns, rows)
    if moved is not None:
        print(f"{int(moved.sum())} of {matrix.size} replicas move.")


def _moved_to(request: PlacementRequest, result: PlacementResult) -> npt.NDArray[np.int64] | None:
    """Replicas that each node gets and did not hold: int64 [N]."""
    before = request.previous
    if before is None:
        return None
    number = {name: at for at, name in enumerate(result.nodes)}
    old = np.array([number.get(name, -1) for name in before.nodes], dtype=np.int32)[before.matrix]
    stays = (result.matrix[:, :, None] == old[:, None, :]).any(axis=2)
    return np.bincount(result.matrix[~stays], minlength=len(result.nodes))
