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
from app.cli.sql_source import STDIN
from catalog.core.quorum import ALL_REPLICAS
from catalog.core.zone import ZoneId
from rebalance.core.affinity import CopyState
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
        told = f"{replicas} replicas on {nodes} {'node' if nodes == 1 else 'nodes'}: a partition gets {nodes}"
        print(f"zonectl: warning: {before}{told}", file=sys.stderr)
    most = min(nodes, replicas)
    if consensus is not None and consensus > most:
        print(
            f"zonectl: warning: {before}{consensus} voters of {most} replicas: all of them vote",
            file=sys.stderr,
        )


def read_nodes(path: Path) -> list[PlacedNode]:
    """A file of names or of objects, at least one. Raises UsageError."""
    found = nodes_of(read_json(path), str(path))
    if not found:
        raise UsageError(f"{path}: there is no node to place replicas on: name at least one")
    return found


def nodes_of(found: object, path: str) -> list[PlacedNode]:
    """``path`` is what errors call it."""
    if not isinstance(found, list):
        raise UsageError(f"{path}: expected a JSON list of node names or objects, found {_kind(found)}")
    return [_node(path, at, each) for at, each in enumerate(found)]


def _node(path: str, at: int, found: object) -> PlacedNode:
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


def read_previous(path: Path, partitions: int | None = None) -> PreviousPlacement:
    """Assignments of ``partitions``, None: of any number of them. Raises UsageError, also for none at all."""
    found = read_json(path)
    rows = found.get("assignments") if isinstance(found, dict) else None
    if not isinstance(rows, list) or partitions not in (None, len(rows)):
        count = f"{len(rows)} of them" if isinstance(rows, list) else "none"
        wanted = "" if partitions is None else f" of {partitions} partitions"
        raise UsageError(f'{path}: expected "assignments"{wanted}, found {count}')
    if not any(rows):
        raise UsageError(f'{path}: "assignments" has no replica: there is nothing to compare')
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


def read_sizes(path: Path, partitions: int) -> npt.NDArray[np.int64]:
    """A JSON list of the bytes of a copy of each partition. Raises UsageError."""
    found = read_json(path)
    if not isinstance(found, list) or len(found) != partitions:
        count = f"{len(found)} numbers" if isinstance(found, list) else _kind(found)
        raise UsageError(f"{path}: expected a JSON list of {partitions} numbers of bytes, found {count}")
    for at, each in enumerate(found):
        if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each < 1 << 62:
            raise UsageError(f"{path}: partition {at}: expected a number of bytes from 0 on, found {each!r}")
    return np.array(found, dtype=np.int64)


def read_copies(path: Path) -> list[Copy]:
    """A JSON list of copies as nodes report them. Raises UsageError."""
    found = read_json(path)
    if not isinstance(found, list):
        raise UsageError(f"{path}: expected a JSON list of copies, found {_kind(found)}")
    if not found:
        raise UsageError(f"{path}: there is no copy to compare")
    names = ", ".join(COPY_FIELDS)
    copies = []
    for at, each in enumerate(found, start=1):
        where = f"{path}: copy {at}"
        if not isinstance(each, dict) or set(each) != set(COPY_FIELDS):
            raise UsageError(f"{where}: expected an object with exactly {names}")
        for name, kind in COPY_FIELDS.items():
            if isinstance(each[name], bool) or not isinstance(each[name], kind):
                wanted = "a text" if kind is str else "a whole number"
                raise UsageError(f"{where}: {name}: expected {wanted}, found {each[name]!r}")
        states = [state.value for state in CopyState]
        if each["state"] not in states:
            raise UsageError(f"{where}: state {each['state']!r}: there are {', '.join(states)}")
        copies.append(Copy(**each))
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


def _kind(found: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", type(None): "nothing", bool: "a boolean"}
    return names.get(type(found), "a number")
