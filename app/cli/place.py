"""``zonectl place``: assignments for a set of nodes, without a cluster; and the files that it and ``zonectl
whatif`` read: nodes, and assignments as they were printed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt

from app.cli.exits import CliError, ExitCode, UsageError
from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, SparkOption, make_settings, option
from app.cli.output import counted, print_rows, say
from app.cli.sql_source import STDIN
from app.configuration.settings import Settings
from catalog.core.quorum import ALL_REPLICAS
from catalog.core.zone import DistributionAlgorithm, ZoneId
from rebalance.core.partition_maps.partition_map import CopyState
from rebalance.kernels.assessment import held, level_counts, renumbered
from rebalance.ports.placement import (
    Engine,
    EngineState,
    PlacementError,
    PlacementRequest,
    PlacementResult,
    PreviousPlacement,
)
from spark.batch import place_locally
from spark.copies import Copy
from spark.mapped import Analysis

if TYPE_CHECKING:
    from spark.placement_engine import SparkPlacementEngine


COPY_FIELDS = {"zone": int, "partition": int, "node": str, "state": str, "update_counter": int, "size": int}


@dataclass(frozen=True, slots=True)
class PlacedNode:
    name: str
    weight: float = 1.0
    domain: str = ""


def placement_request(
    nodes: Sequence[PlacedNode], partitions: int, replicas: int, consensus: int, algorithm: str, where: str
) -> PlacementRequest:
    """Make a request for a placement. ``where``: the name of the nodes in errors. Raises UsageError."""
    names, weights = tuple(node.name for node in nodes), tuple(node.weight for node in nodes)
    domains = tuple(node.domain for node in nodes) if any(node.domain for node in nodes) else ()
    if not all(domains):
        raise UsageError(f"{where}: either every node has a domain or none")
    return PlacementRequest(
        ZoneId(0), names, partitions, replicas, consensus, algorithm, weights=weights, domains=domains
    )


def read_replicas(text: str, what: str = "--replicas") -> int:
    """Read a number or ALL; ``what``: its name in errors. Raises UsageError."""
    if text.upper() == "ALL":
        return ALL_REPLICAS
    if not text.isdecimal() or not 1 <= int(text) <= ALL_REPLICAS:
        raise UsageError(f"{what} {text}: a number from 1 on, or ALL")
    return int(text)


def warn_of_surplus(nodes: int, replicas: int, consensus: int | None = None, where: str = "") -> None:
    """Warn on stderr of more replicas than nodes, or more voters than replicas."""
    before = f"{where}: " if where else ""
    if nodes < replicas != ALL_REPLICAS:
        surplus = f"{replicas} replicas on {counted(nodes, 'node')}: a partition gets {nodes}"
        print(f"zonectl: warning: {before}{surplus}", file=sys.stderr)
    most = min(nodes, replicas)
    if consensus is not None and consensus > most:
        print(
            f"zonectl: warning: {before}{consensus} voters of {most} replicas: all of them vote",
            file=sys.stderr,
        )


def read_nodes(path: Path) -> list[PlacedNode]:
    """Read a file of nodes, names or objects, at least one. Raises UsageError."""
    nodes = nodes_of(read_json(path), str(path))
    if not nodes:
        raise UsageError(f"{path}: there is no node to place replicas on: name at least one")
    return nodes


def nodes_of(listed: object, path: str) -> list[PlacedNode]:
    """The nodes of a JSON list; ``path``: its name in errors. Raises UsageError."""
    if not isinstance(listed, list):
        raise UsageError(f"{path}: expected a JSON list of node names or objects, found {_kind(listed)}")
    return [_node(path, at, item) for at, item in enumerate(listed)]


def _node(path: str, at: int, item: object) -> PlacedNode:
    if isinstance(item, str):
        return PlacedNode(item)
    where = f"{path}: node {at + 1}"
    if not isinstance(item, dict):
        raise UsageError(f"{where}: expected a name or an object, found {_kind(item)}")
    name, weight, domain = item.get("name"), item.get("weight", 1.0), item.get("domain", "")
    if not isinstance(name, str):
        raise UsageError(f'{where}: "name" must be a string, found {_kind(name)}')
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
        raise UsageError(f'{where}: "weight" must be a positive number, found {weight!r}')
    if not isinstance(domain, str):
        raise UsageError(f'{where}: "domain" must be a string, found {_kind(domain)}')
    return PlacedNode(name, float(weight), domain)


def read_previous(path: Path, partitions: int | None = None) -> PreviousPlacement:
    """Read assignments of ``partitions``; None: of any number of them. Raises UsageError, also for none at
    all."""
    document = read_json(path)
    rows = document.get("assignments") if isinstance(document, dict) else None
    if not isinstance(rows, list) or partitions not in (None, len(rows)):
        count = f"{len(rows)} of them" if isinstance(rows, list) else "none"
        expected = "" if partitions is None else f" of {partitions} partitions"
        raise UsageError(f'{path}: expected "assignments"{expected}, found {count}')
    if not any(rows):
        raise UsageError(f'{path}: "assignments" has no replica: there is nothing to compare')
    try:
        replicas = [[(replica["node"], replica["peer"]) for replica in row] for row in rows]
    except (TypeError, KeyError) as error:
        raise UsageError(f'{path}: each assignment is a list of {{"node", "peer"}}') from error
    if not all(isinstance(name, str) and isinstance(peer, bool) for row in replicas for name, peer in row):
        raise UsageError(f'{path}: "node" must be a string, and "peer" true or false')
    names = [[name for name, _ in row] for row in replicas]
    voters = {sum(peer for _, peer in row) for row in replicas}
    if len({len(row) for row in names}) > 1 or len(voters) > 1:
        raise UsageError(f"{path}: every partition must have as many replicas and as many peers as the others")
    known = {name: at for at, name in enumerate(dict.fromkeys(name for row in names for name in row))}
    width = len(names[0]) if names else 0
    matrix = np.array([[known[name] for name in row] for row in names], dtype=np.int32).reshape(-1, width)
    return PreviousPlacement(tuple(known), matrix, voters.pop() if voters else 1)


def read_sizes(path: Path, partitions: int) -> npt.NDArray[np.int64]:
    """Read a JSON list with the bytes of a copy of each partition. Raises UsageError."""
    sizes = read_json(path)
    if not isinstance(sizes, list) or len(sizes) != partitions:
        count = f"{len(sizes)} numbers" if isinstance(sizes, list) else _kind(sizes)
        raise UsageError(f"{path}: expected a JSON list of {partitions} numbers of bytes, found {count}")
    for at, size in enumerate(sizes):
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 1 << 62:
            raise UsageError(f"{path}: partition {at}: expected a number of bytes from 0 on, found {size!r}")
    return np.array(sizes, dtype=np.int64)


def read_copies(path: Path) -> list[Copy]:
    """Read a JSON list of copies as nodes report them. Raises UsageError."""
    listed = read_json(path)
    if not isinstance(listed, list):
        raise UsageError(f"{path}: expected a JSON list of copies, found {_kind(listed)}")
    if not listed:
        raise UsageError(f"{path}: there is no copy to compare")
    names = ", ".join(COPY_FIELDS)
    copies = []
    for at, item in enumerate(listed, start=1):
        where = f"{path}: copy {at}"
        if not isinstance(item, dict) or set(item) != set(COPY_FIELDS):
            raise UsageError(f"{where}: expected an object with exactly {names}")
        for name, kind in COPY_FIELDS.items():
            if isinstance(item[name], bool) or not isinstance(item[name], kind):
                expected = "a text" if kind is str else "a whole number"
                raise UsageError(f"{where}: {name}: expected {expected}, found {item[name]!r}")
        states = [state.value for state in CopyState]
        if item["state"] not in states:
            raise UsageError(f"{where}: state {item['state']!r}: there are {', '.join(states)}")
        copies.append(Copy(**item))
    return copies


def read_json(path: Path) -> Any:
    try:
        text = sys.stdin.read() if str(path) == STDIN else path.read_text(encoding="utf-8-sig")
        return json.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: JSON that cannot be read: {error}") from error


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", type(None): "nothing", bool: "a boolean"}
    return names.get(type(value), "a number")


SPARK_WAIT_S = 120.0
T = TypeVar("T")


class EngineChoice(StrEnum):
    LOCAL = "local"
    SPARK = "spark"


class PlaceFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Computation:
    """Options for the engine that computes an answer, and for its format."""

    engine: Annotated[
        EngineChoice, option("--engine", "`spark` starts a Spark driver (about 10 s); same result.")
    ] = EngineChoice.LOCAL
    form: Annotated[PlaceFormat, option("--format", "Output format.")] = PlaceFormat.TABLE
    spark_master: SparkOption = None
    data_dir: DataDirOption = DEFAULT_DATA_DIR

    @property
    def as_json(self) -> bool:
        return self.form is PlaceFormat.JSON

    def spark(self) -> Settings | None:
        """Settings of Spark; None: the answer is computed in this process. Raises UsageError."""
        from app.configuration.spark_settings import open_spark
        from app.security.protections import leaving

        if self.engine is not EngineChoice.SPARK:
            return None
        settings = make_settings(spark_master=self.spark_master, data_dir=self.data_dir)
        try:
            is_open = leaving(open_spark(settings))
        except ValueError as error:
            raise UsageError(str(error)) from error
        for host, text in sorted(is_open.items()):
            raise UsageError(f"{host}: {text}. Name the file, or compute it here with --engine local")
        return settings


def place(
    *,
    nodes: Annotated[
        Path,
        option("--nodes", 'JSON list of names, or of {"name", "weight", "domain"}; `-` reads stdin.', "FILE"),
    ],
    partitions: Annotated[int, option("--partitions", "Number of partitions.", "P", min=0)],
    replicas: Annotated[str, option("--replicas", "Number of replicas per partition.", "R|ALL")],
    consensus: Annotated[
        int | None,
        option("--consensus", "Number of voters; the other replicas are learners.", "C", min=0, default="all"),
    ] = None,
    algorithm: Annotated[
        DistributionAlgorithm,
        option("--algorithm", "`balanced` is even, and moves little from --previous."),
    ] = DistributionAlgorithm.RENDEZVOUS,
    previous: Annotated[
        Path | None,
        option("--previous", "Previous placement, as printed by this command (balanced only).", "FILE"),
    ] = None,
    computation: Computation,
) -> None:
    """Compute which nodes hold the replicas of each partition.

    `rendezvous` is Ignite's algorithm, bit for bit. `balanced` gives all nodes the
    same number of replicas, voters and primaries, to within one; with --previous
    it moves no more replicas than that requires.

    \b
    Examples:
      zonectl place --nodes nodes.json --partitions 1024 --replicas 3
      zonectl place --nodes nodes.json --partitions 64 --replicas ALL --consensus 3 --format json
      zonectl place --nodes n.json --partitions 64 --replicas 3 --algorithm balanced --format json > before.json
      zonectl place --nodes more.json --partitions 64 --replicas 3 --algorithm balanced --previous before.json

    JSON: {"assignments": [[{"node", "peer"}, ...], ...]}, one partition per line, in
    order of preference.

    Exit codes: 0 placed, 1 cannot be placed, 64 usage error, 130 interrupted.
    """
    if previous is not None and algorithm is not DistributionAlgorithm.BALANCED:
        raise UsageError("--previous is for --algorithm balanced: rendezvous has no memory")
    count = read_replicas(replicas)
    voters = count if consensus is None else consensus
    listed = read_nodes(nodes)
    warn_of_surplus(len(listed), count, consensus)
    request = placement_request(listed, partitions, count, voters, algorithm.value, str(nodes))
    if algorithm is not DistributionAlgorithm.BALANCED:
        request = replace(request, weights=(), domains=())
    if previous is not None:
        request = replace(request, previous=read_previous(previous, partitions))
    spark = computation.spark()
    try:
        result = place_locally([request])[0] if spark is None else asyncio.run(_on_spark(request, spark))
    except PlacementError as error:
        raise CliError(ExitCode.FAILED, f"cannot be placed: {error.reason}") from error
    if computation.as_json:
        _print_json(result)
    else:
        _print_table(request, result)


@asynccontextmanager
async def spark_engine(settings: Settings) -> AsyncIterator[SparkPlacementEngine]:
    """Start a Spark driver for this command alone."""
    from app.configuration.spark_settings import spark_network
    from spark.placement_engine import SparkPlacementEngine
    from spark.supervisor import DriverConfig

    with tempfile.TemporaryDirectory(prefix="zonekeeper-place-") as scratch:
        config = DriverConfig(settings.spark_master, Path(scratch), network=spark_network(settings))
        engine = SparkPlacementEngine(config, SPARK_WAIT_S)
        await engine.start()
        try:
            yield engine
            if engine.status().state is not EngineState.READY:
                print(f"zonectl: Spark was not ready: {engine.status().message}", file=sys.stderr)
        finally:
            await engine.close()


def answered(analysis: Analysis[T], spark: Settings | None) -> tuple[T, Engine]:
    """The answer, and the engine that computed it. ``spark`` None: this process."""
    if spark is None:
        return analysis.here(), Engine.LOCAL

    async def ask(settings: Settings) -> tuple[T, Engine]:
        async with spark_engine(settings) as engine:
            return await engine.answer(analysis)

    return asyncio.run(ask(spark))


async def _on_spark(request: PlacementRequest, settings: Settings) -> PlacementResult:
    async with spark_engine(settings) as engine:
        (result,) = await engine.place([request])
    return result


def _print_json(result: PlacementResult) -> None:
    """Print one partition on a line, so that a large answer can be read as a stream."""
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
    """Print the replicas of each node, the spread, and with a previous placement the moves."""
    counts = level_counts(len(result.nodes), result.matrix, max(1, result.consensus))
    columns: dict[str, Any] = dict(zip(("REPLICAS", "VOTERS", "PRIMARIES"), counts, strict=True))
    spread = [str(int(np.ptp(count))) for count in counts] if result.nodes else []
    if request.previous is not None:
        # Replicas that each node gets and did not hold.
        old = renumbered(request.previous.nodes, request.previous.matrix, result.nodes)
        moved = result.matrix[~held(result.matrix, old)]
        columns["MOVED_IN"] = np.bincount(moved, minlength=len(result.nodes))
        spread += [""]
    rows = [[name, *(str(count[at]) for count in columns.values())] for at, name in enumerate(result.nodes)]
    print_rows(["NODE", *columns], rows + ([["max - min", *spread]] if result.nodes else []))
    if request.previous is not None:
        say(f"{int(columns['MOVED_IN'].sum())} of {result.matrix.size} replicas move.")
