"""The files of ``zonectl place`` and ``zonectl whatif``: nodes, and assignments as they were printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.cli.exits import UsageError
from app.cli.say import counted
from app.cli.sql_source import STDIN
from catalog.core.quorum import ALL_REPLICAS
from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.affinity import CopyState
from rebalance.ports.placement import PlacementRequest, PreviousPlacement
from spark.copies import Copy

COPY_FIELDS = {"zone": int, "partition": int, "node": str, "state": str, "update_counter": int, "size": int}


@dataclass(frozen=True, slots=True)
class PlacedNode:
    name: str
    weight: float = 1.0
    domain: str = ""


def placement_request(
    nodes: Sequence[PlacedNode], partitions: int, replicas: int, consensus: int, algorithm: str, where: str
) -> PlacementRequest:
    """``where`` is what errors call the nodes. Raises UsageError."""
    names, weights = tuple(node.name for node in nodes), tuple(node.weight for node in nodes)
    domains = tuple(node.domain for node in nodes) if any(node.domain for node in nodes) else ()
    if not all(domains):
        raise UsageError(f"{where}: either every node has a domain or none")
    return PlacementRequest(
        ZoneId(0), names, partitions, replicas, consensus, algorithm, weights=weights, domains=domains
    )


def read_replicas(text: str, what: str = "--replicas") -> int:
    """A number or ALL; ``what`` is what errors call it. Raises UsageError."""
    if text.upper() == "ALL":
        return ALL_REPLICAS
    if not text.isdecimal() or not 1 <= int(text) <= ALL_REPLICAS:
        raise UsageError(f"{what} {text}: a number from 1 on, or ALL")
    return int(text)


def warn_of_surplus(nodes: int, replicas: int, consensus: int | None = None, where: str = "") -> None:
    """On stderr: more was asked for than there are nodes, or than there are replicas to vote."""
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
    """A file of names or of objects, at least one. Raises UsageError."""
    nodes = nodes_of(read_json(path), str(path))
    if not nodes:
        raise UsageError(f"{path}: there is no node to place replicas on: name at least one")
    return nodes


def nodes_of(listed: object, path: str) -> list[PlacedNode]:
    """``path`` is what errors call it."""
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
    """Assignments of ``partitions``, None: of any number of them. Raises UsageError, also for none at all."""
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
    """A JSON list of the bytes of a copy of each partition. Raises UsageError."""
    sizes = read_json(path)
    if not isinstance(sizes, list) or len(sizes) != partitions:
        count = f"{len(sizes)} numbers" if isinstance(sizes, list) else _kind(sizes)
        raise UsageError(f"{path}: expected a JSON list of {partitions} numbers of bytes, found {count}")
    for at, size in enumerate(sizes):
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 1 << 62:
            raise UsageError(f"{path}: partition {at}: expected a number of bytes from 0 on, found {size!r}")
    return np.array(sizes, dtype=np.int64)


def read_copies(path: Path) -> list[Copy]:
    """A JSON list of copies as nodes report them. Raises UsageError."""
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


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", type(None): "nothing", bool: "a boolean"}
    return names.get(type(value), "a number")
