"""Short ways to say what the tests of the catalog are about."""

from __future__ import annotations

import pytest

from catalog.core.errors import ErrorKind, StatementError
from catalog.core.messages import Command
from catalog.core.snapshot import CatalogSnapshot, Change, Topology, apply_command
from catalog.core.zone import Node, Zone
from catalog.filters.json_path import JSON_PATH
from parser.to_command import parse_ddl


def nodes(count: int, member_limit: int = 100) -> Topology:
    return tuple(Node(f"n{n}", member_limit=member_limit) for n in range(1, count + 1))


def command(sql: str) -> Command:
    (parsed,) = parse_ddl(sql)
    return parsed


def catalog(*statements: str, topology: Topology | None = None) -> CatalogSnapshot:
    """The catalog that these statements lead to, on three nodes unless said otherwise."""
    snapshot = CatalogSnapshot()
    for sql in statements:
        snapshot = snapshot.after(change(sql, snapshot, topology).entries)
    return snapshot


def change(sql: str, snapshot: CatalogSnapshot | None = None, topology: Topology | None = None) -> Change:
    alive = nodes(3) if topology is None else topology
    return apply_command(snapshot or CatalogSnapshot(), command(sql), alive, filters=JSON_PATH)


def zone(sql: str, snapshot: CatalogSnapshot | None = None, topology: Topology | None = None) -> Zone:
    after = change(sql, snapshot, topology).after
    assert after is not None
    return after


def refusal(
    sql: str, snapshot: CatalogSnapshot | None = None, topology: Topology | None = None
) -> tuple[ErrorKind, str]:
    """Kind and message; every refusal also has a place in the text."""
    with pytest.raises(StatementError) as error:
        change(sql, snapshot, topology)
    assert error.value.line is not None
    assert error.value.column is not None
    return error.value.kind, error.value.message
