"""Statements that wait together are one SQL transaction, and each still its own: on SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import OperationalError

from catalog.core.audit import Actor, AuditFilter, Channel
from catalog.core.errors import ErrorKind, StatementError
from catalog.core.snapshot import CatalogSnapshot, Change, Topology
from catalog.core.statement_batch import ScriptRun
from catalog.core.zone import Node, ZoneIntent
from catalog.service import VERSIONS_MAX, CatalogService
from catalog.store import CatalogStore
from tests.fixtures.script_runner import script_of

NODES = (Node("n1"), Node("n2"), Node("n3"))


@pytest.fixture
def store(catalog_url: str) -> Iterator[CatalogStore]:
    opened = CatalogStore.open(catalog_url)
    yield opened
    opened.close()


@contextmanager
def commits() -> Iterator[list[int]]:
    """One entry for each SQL transaction that is committed meanwhile."""
    seen: list[int] = []

    def commit(_connection: Connection) -> None:
        seen.append(1)

    event.listen(Engine, "commit", commit)
    try:
        yield seen
    finally:
        event.remove(Engine, "commit", commit)


def actor(name: str) -> Actor:
    return Actor(name, True, Channel.REST, "10.0.0.7")


def kind_of(run: ScriptRun) -> tuple[ErrorKind | None, int | None]:
    if run.error is None:
        return None, None
    assert isinstance(run.error, StatementError)
    return run.error.kind, run.error.statement


def test_a_mixed_batch_is_one_transaction_in_which_each_stands_for_itself(store: CatalogStore) -> None:
    service = CatalogService(store.unit_of_work)
    service.execute(script_of("CREATE ZONE old; CREATE ZONE gone", NODES).commands, NODES)
    scripts = [
        script_of("CREATE ZONE a (REPLICAS 2)", NODES, actor=actor("ann"), statement_ids=["id-a"]),
        script_of("CREATE ZONE a", NODES, actor=actor("bob")),
        script_of("CREATE ZONE b; CREATE ZONE old; CREATE ZONE c", NODES, actor=actor("cid")),
        script_of("DROP ZONE gone", NODES, base_version=2),
        script_of("ALTER ZONE a SET (REPLICAS 3)", NODES, base_version=4),
        script_of("CREATE ZONE IF NOT EXISTS a", NODES),
        script_of("ALTER ZONE a SET (REPLICAS 3)", NODES),
        script_of("DROP ZONE gone", NODES, actor=actor("eve"), statement_ids=["id-e"]),
    ]
    with commits() as transactions:
        runs = service.execute_together(scripts)
    assert len(transactions) == 1
    assert [kind_of(run) for run in runs] == [
        (None, None),
        (ErrorKind.ZONE_ALREADY_EXISTS, 1),
        (ErrorKind.ZONE_ALREADY_EXISTS, 2),
        # A guard is held against what the transaction holds already, not against what was there before it.
        (ErrorKind.CATALOG_VERSION_CONFLICT, 1),
        (None, None),
        (None, None),
        (None, None),
        (None, None),
    ]
    assert [[done.version for done in run.done] for run in runs] == [[3], [], [4], [], [5], [5], [5], [6]]
    assert [run.done[0].change.applied for run in runs[4:]] == [True, False, False, True]
    assert not runs[6].done[0].change.entries
    history = store.history(after=2)
    assert [(record.version, record.statement, record.by) for record in history] == [
        (3, "CREATE ZONE a (REPLICAS 2)", "ann"),
        (4, "CREATE ZONE b", "cid"),
        (5, "ALTER ZONE a SET (REPLICAS 3)", ""),
        (6, "DROP ZONE gone", "eve"),
    ]
    assert [store.unit_of_work.version_of(id_) for id_ in ("id-a", "id-e")] == [3, 6]
    intents = [(row.version, ZoneIntent.decode(row.payload)) for row in store.outbox.unsent()[2:]]
    assert [(version, intent.zone.name, intent.dropped) for version, intent in intents] == [
        (3, "A", False),
        (4, "B", False),
        (5, "A", False),
        (6, "GONE", True),
    ]
    audit = [record.entry for record in reversed(store.audit.read(AuditFilter(), 4))]
    assert [(entry.action, entry.subject, entry.actor.name, entry.version_after) for entry in audit] == [
        ("CREATE ZONE", "A", "ann", 3),
        ("CREATE ZONE", "B", "cid", 4),
        ("ALTER ZONE", "A", "", 5),
        ("DROP ZONE", "GONE", "eve", 6),
    ]
    for version, names in ((3, ["OLD", "GONE", "A"]), (4, ["OLD", "GONE", "A", "B"]), (6, ["OLD", "A", "B"])):
        assert [zone.name for zone in store.unit_of_work.snapshot(version).zones] == names
    reopened = CatalogService(store.unit_of_work).snapshot()
    assert reopened == store.unit_of_work.snapshot(6)


def test_nothing_but_refusals_is_no_transaction(store: CatalogStore) -> None:
    with commits() as transactions:
        runs = CatalogService(store.unit_of_work).execute_together(
            script_of(sql, NODES)
            for sql in ("DROP ZONE a", "DROP ZONE IF EXISTS a", "ALTER ZONE a SET DEFAULT")
        )
    assert [kind_of(run)[0] for run in runs] == [ErrorKind.ZONE_NOT_FOUND, None, ErrorKind.ZONE_NOT_FOUND]
    assert transactions == []
    assert store.history() == ()


def test_a_new_name_keeps_who_asked_for_the_data_in_the_same_transaction(store: CatalogStore) -> None:
    scripts = [
        script_of("CREATE ZONE a", NODES, actor=actor("ann")),
        script_of("ALTER ZONE a RENAME TO b", NODES, actor=actor("bob")),
    ]
    runs = CatalogService(store.unit_of_work).execute_together(scripts)
    assert [kind_of(run) for run in runs] == [(None, None)] * 2
    origins = [ZoneIntent.decode(row.payload).origin for row in store.outbox.unsent()]
    assert [origin.by if origin is not None else None for origin in origins] == ["ann", "ann"]


@pytest.mark.parametrize("size", [1, 3])
def test_a_transaction_is_bounded(store: CatalogStore, size: int) -> None:
    """The bound holds within a script too, whose later statements follow in the next transaction."""
    count = 2 * VERSIONS_MAX + 2
    texts = [f"CREATE ZONE z{number}" for number in range(count)]
    scripts = [script_of(";".join(texts[at : at + size]), NODES) for at in range(0, count, size)]
    with commits() as transactions:
        runs = CatalogService(store.unit_of_work).execute_together(scripts)
    assert len(transactions) == 3
    versions = [done.version for run in runs for done in run.done]
    assert versions == list(range(1, count + 1))
    assert [record.statement for record in store.history()] == texts


def test_a_conflict_decides_the_whole_batch_again(store: CatalogStore, catalog_url: str) -> None:
    """Another server takes the version that the batch was to begin with."""
    other = store if catalog_url.startswith("sqlite") else CatalogStore.open(catalog_url)
    interrupted: list[int] = []

    def interrupt(change: Change, snapshot: CatalogSnapshot, topology: Topology) -> None:
        if change.after is not None and change.after.name == "B" and not interrupted:
            interrupted.append(snapshot.version)
            commands = script_of("CREATE ZONE c", NODES).commands
            CatalogService(other.unit_of_work).execute(commands, NODES)

    runs = CatalogService(store.unit_of_work, checks=[interrupt]).execute_together(
        script_of(f"CREATE ZONE {name}", NODES) for name in ("a", "b", "c", "d")
    )
    assert interrupted == [1]
    assert [kind_of(run)[0] for run in runs] == [None, None, ErrorKind.ZONE_ALREADY_EXISTS, None]
    assert [[done.version for done in run.done] for run in runs] == [[2], [3], [], [4]]
    statements = [record.statement for record in store.history()]
    assert statements == ["CREATE ZONE c", "CREATE ZONE a", "CREATE ZONE b", "CREATE ZONE d"]
    other.close()


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_batch_whose_answer_is_lost_happens_once(store: CatalogStore, is_committed: bool) -> None:
    lost: list[int] = []

    def lose(connection: Connection) -> None:
        if not lost:
            lost.append(1)
            raw: Any = connection.connection
            raw.commit() if is_committed else raw.rollback()
            raise OperationalError("COMMIT", {}, Exception("the server closed the connection"))

    event.listen(Engine, "commit", lose)
    try:
        runs = CatalogService(store.unit_of_work).execute_together(
            script_of(f"CREATE ZONE {name}", NODES) for name in ("a", "b", "a")
        )
    finally:
        event.remove(Engine, "commit", lose)
    assert lost == [1]
    assert [kind_of(run)[0] for run in runs] == [None, None, ErrorKind.ZONE_ALREADY_EXISTS]
    assert [record.statement for record in store.history()] == ["CREATE ZONE a", "CREATE ZONE b"]
    assert [row.version for row in store.outbox.unsent()] == [1, 2]


def test_two_servers_commit_batches_at_once(store: CatalogStore, catalog_url: str) -> None:
    """PostgreSQL: a store each, as in processes of their own. SQLite has one writer: they share the store."""
    shared = catalog_url.startswith("sqlite")
    stores = [store, store] if shared else [store, CatalogStore.open(catalog_url)]
    runs: dict[str, ScriptRun] = {}

    def work(number: int) -> None:
        service = CatalogService(stores[number].unit_of_work)
        for turn in range(6):
            texts = [f"CREATE ZONE z_{number}_{turn}_{n}" for n in range(5)] + [f"CREATE ZONE common_{turn}"]
            ended = service.execute_together(script_of(text, NODES) for text in texts)
            runs.update({f"{number}: {text}": run for text, run in zip(texts, ended, strict=True)})

    run_at_once(lambda: work(0), lambda: work(1))
    history = store.history()
    assert [record.version for record in history] == list(range(1, 2 * 6 * 5 + 6 + 1))
    made = {record.statement: record.version for record in history}
    assert len(made) == len(history)
    for name, run in runs.items():
        text = name.partition(": ")[2]
        if run.error is None:
            assert [done.version for done in run.done] == [made[text]]
        else:
            assert kind_of(run) == (ErrorKind.ZONE_ALREADY_EXISTS, 1)
    refused = [name for name, run in runs.items() if run.error is not None]
    assert sorted(name.partition("_")[2] for name in refused) == [str(turn) for turn in range(6)]
    stores[1].close()


def run_at_once(*works: Callable[[], None]) -> None:
    """Each in a thread of its own; an exception of any fails the test."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
