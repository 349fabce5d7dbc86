"""The loop around a store that conflicts, goes away, or does not say how a commit ended."""

from __future__ import annotations

import pytest

from catalog.core.errors import ErrorKind, RefusedError, StatementError, StoreError
from catalog.core.snapshot import CatalogSnapshot, Change, Topology
from catalog.core.statement_batch import ExecutedStatement, ScriptRun
from catalog.core.zone import ZoneId
from catalog.ports import CommitOutcome
from catalog.service import ATTEMPTS_MAX, RESOLVE_ATTEMPTS_MAX, CatalogService, ChangeCheck
from parser.to_command import parse_ddl
from tests.fixtures.memory_unit_of_work import MemoryUnitOfWork, Trouble
from tests.fixtures.script_runner import script_of
from tests.unit.catalog.commands import nodes


def somebody_else(sql: str) -> Trouble:
    """Another coordinator is faster."""

    def trouble(store: MemoryUnitOfWork) -> None:
        CatalogService(store).execute(parse_ddl(sql), nodes(3))

    return trouble


def lost_before(store: MemoryUnitOfWork) -> CommitOutcome:
    """The connection went away, and nothing was committed."""
    return CommitOutcome.UNKNOWN


def lost_behind(sql: str) -> Trouble:
    """The commit happened; its answer was lost. (The statement's id is what the service under test uses.)"""

    def trouble(store: MemoryUnitOfWork) -> CommitOutcome:
        execute(store, sql)
        return CommitOutcome.UNKNOWN

    return trouble


def execute(store: MemoryUnitOfWork, sql: str) -> list[ExecutedStatement]:
    """One statement, under the id ``id``. Raises what it ends with."""
    (run,) = service(store).execute_together([script_of(sql, nodes(3), statement_ids=["id"])])
    if run.error is not None:
        raise run.error
    return run.done


def service(store: MemoryUnitOfWork, *checks: ChangeCheck) -> CatalogService:
    return CatalogService(store, checks=checks, pause=lambda seconds: None)


def test_a_conflict_is_decided_again_on_the_new_version() -> None:
    store = MemoryUnitOfWork(somebody_else("CREATE ZONE a"))
    (executed,) = service(store).execute(parse_ddl("CREATE ZONE b"), nodes(3))
    assert executed.version == 2
    assert executed.change.zone_id == 2
    assert [zone.name for zone in store.snapshots[-1].zones] == ["A", "B"]


def test_a_conflict_can_turn_into_a_refusal() -> None:
    store = MemoryUnitOfWork(somebody_else("CREATE ZONE a"))
    with pytest.raises(RefusedError) as error:
        service(store).execute(parse_ddl("CREATE ZONE a"), nodes(3))
    assert error.value.kind is ErrorKind.ZONE_ALREADY_EXISTS


@pytest.mark.row("I3-002")
def test_the_same_change_from_somebody_faster_makes_no_second_version() -> None:
    """I3-002."""
    store = MemoryUnitOfWork(None, somebody_else("ALTER ZONE a SET REPLICAS 3"))
    first, second = service(store).execute(parse_ddl("CREATE ZONE a; ALTER ZONE a SET REPLICAS 3"), nodes(3))
    assert (first.version, second.version) == (1, 2)
    assert second.change.applied
    assert len(store.snapshots) == 3


def test_endless_conflicts_end() -> None:
    always = [lambda store: CommitOutcome.CONFLICT] * ATTEMPTS_MAX
    with pytest.raises(StoreError) as error:
        service(MemoryUnitOfWork(*always)).execute(parse_ddl("CREATE ZONE a"), nodes(3))
    assert error.value.kind is ErrorKind.CATALOG_VERSION_CONFLICT
    assert error.value.statement == 1


@pytest.mark.parametrize("away", [0, 1, RESOLVE_ATTEMPTS_MAX - 1])
@pytest.mark.parametrize(
    "trouble",
    [lost_before, lost_behind("CREATE ZONE a")],
    ids=["not committed", "committed"],
)
def test_an_unknown_outcome_is_read_back(trouble: Trouble, away: int) -> None:
    """Exactly one version, whether or not the lost commit had happened."""

    def lost(store: MemoryUnitOfWork) -> CommitOutcome | None:
        outcome = trouble(store)
        store.away = away
        return outcome

    store = MemoryUnitOfWork(lost)
    if trouble is not lost_before:
        # The lost commit itself goes through the store's ordinary commit.
        store.troubles.append(None)
    (executed,) = execute(store, "CREATE ZONE a")
    assert executed.version == 1
    assert executed.change.applied
    assert len(store.snapshots) == 2


def test_a_lost_commit_that_somebody_else_overtook_is_decided_again() -> None:
    def overtaken(store: MemoryUnitOfWork) -> CommitOutcome:
        somebody_else("CREATE ZONE a")(store)
        return CommitOutcome.UNKNOWN

    store = MemoryUnitOfWork(overtaken)
    (executed,) = service(store).execute(parse_ddl("CREATE ZONE b"), nodes(3))
    assert executed.version == 2
    assert len(store.snapshots) == 3


def test_a_lost_commit_that_lands_while_it_is_repeated_happens_once() -> None:
    """The database still works on the lost commit when it is asked: the repeat loses against it."""
    store = MemoryUnitOfWork(lost_before, lost_behind("CREATE ZONE a"), None)
    (executed,) = execute(store, "CREATE ZONE a")
    assert executed.version == 1
    assert len(store.snapshots) == 2


def test_nobody_knows_when_the_store_stays_away() -> None:
    def gone(store: MemoryUnitOfWork) -> CommitOutcome:
        store.away = 10**6
        return CommitOutcome.UNKNOWN

    with pytest.raises(StoreError) as error:
        execute(MemoryUnitOfWork(gone), "CREATE ZONE a")
    assert error.value.kind is ErrorKind.OUTCOME_UNKNOWN
    assert error.value.kind.sqlstate == "40003"
    assert "statement id id" in error.value.message


def test_checks_refuse_before_anything_is_committed() -> None:
    store = MemoryUnitOfWork()
    seen: list[int] = []

    def check(change: Change, snapshot: CatalogSnapshot, topology: Topology) -> None:
        seen.append(snapshot.version)
        if snapshot.version == 1:
            raise RefusedError(ErrorKind.NODE_MEMBER_LIMIT, "full", change.command.position)

    with pytest.raises(StatementError) as error:
        service(store, check).execute(parse_ddl("CREATE ZONE a; CREATE ZONE b"), nodes(3))
    assert error.value.kind is ErrorKind.NODE_MEMBER_LIMIT
    assert error.value.statement == 2
    assert seen == [0, 1]
    assert len(store.snapshots) == 2


def test_effects_of_earlier_statements_stay() -> None:
    store = MemoryUnitOfWork()
    (run,) = service(store).execute_together([script_of("CREATE ZONE a; CREATE ZONE a", nodes(3))])
    assert [executed.version for executed in run.done] == [1]
    assert isinstance(run.error, RefusedError)
    assert run.error.statement == 2
    assert store.snapshots[-1].zone("A") is not None


def together(store: MemoryUnitOfWork, *texts: str) -> list[ScriptRun]:
    """Each text a script of its own, its statement under the text as its id."""
    scripts = [script_of(text, nodes(3), statement_ids=[text]) for text in texts]
    return service(store).execute_together(scripts)


def test_of_a_batch_that_is_lost_each_learns_its_own_statement_id() -> None:
    """A statement that was refused or needed nothing before the transaction has its answer; one that was
    decided on the lost versions has none, and its error says that the catalog is unavailable."""

    def gone(store: MemoryUnitOfWork) -> CommitOutcome:
        store.away = 10**6
        return CommitOutcome.UNKNOWN

    store = MemoryUnitOfWork(gone)
    texts = ("DROP ZONE x", "DROP ZONE IF EXISTS x", "CREATE ZONE a", "CREATE ZONE a", "CREATE ZONE b")
    refused, needless, first, second, third = together(store, *texts)
    assert isinstance(refused.error, RefusedError)
    assert refused.error.kind is ErrorKind.ZONE_NOT_FOUND
    assert needless.error is None
    assert not needless.done[0].change.applied
    for run, text in ((first, "CREATE ZONE a"), (third, "CREATE ZONE b")):
        assert isinstance(run.error, StoreError)
        assert (run.error.kind, run.error.statement, run.error.line) == (ErrorKind.OUTCOME_UNKNOWN, 1, 1)
        assert f"statement id {text} is" in run.error.message
    assert isinstance(second.error, StoreError)
    assert second.error.kind is ErrorKind.CATALOG_UNAVAILABLE
    assert len(store.snapshots) == 1


def test_endless_conflicts_end_for_each_of_a_batch() -> None:
    always = [lambda store: CommitOutcome.CONFLICT] * ATTEMPTS_MAX
    texts = ("DROP ZONE IF EXISTS x", "CREATE ZONE a", "DROP ZONE IF EXISTS a", "CREATE ZONE b")
    needless, *others = together(MemoryUnitOfWork(*always), *texts)
    assert (needless.error, len(needless.done)) == (None, 1)
    for run in others:
        assert isinstance(run.error, StoreError)
        assert (run.error.kind, run.error.statement) == (ErrorKind.CATALOG_VERSION_CONFLICT, 1)
        assert run.done == []


def test_a_defect_that_one_statement_meets_is_its_own() -> None:
    def check(change: Change, snapshot: CatalogSnapshot, topology: Topology) -> None:
        if change.after is not None and change.after.name == "B":
            raise ZeroDivisionError

    store = MemoryUnitOfWork()
    scripts = [script_of(f"CREATE ZONE {name}", nodes(3)) for name in ("a", "b", "c")]
    first, second, third = service(store, check).execute_together(scripts)
    assert isinstance(second.error, ZeroDivisionError)
    assert (first.error, third.error) == (None, None)
    assert [zone.name for zone in store.snapshots[-1].zones] == ["A", "C"]


@pytest.mark.parametrize("trouble", [None, lost_before, somebody_else("CREATE ZONE q")])
@pytest.mark.parametrize("behind", [0, 1])
def test_a_batch_does_what_one_after_the_other_would(trouble: Trouble | None, behind: int) -> None:
    """Compared with the same scripts, each alone; the trouble comes at the first transaction or the second."""
    texts = [
        "CREATE ZONE a; CREATE ZONE b",
        "CREATE ZONE a",
        "DROP ZONE b; DROP ZONE b; CREATE ZONE c",
        "ALTER ZONE a SET (REPLICAS 2)",
        "CREATE TABLE t (id INT PRIMARY KEY) ZONE a",
        "DROP ZONE a",
        "CREATE ZONE IF NOT EXISTS c",
        "ALTER ZONE a RENAME TO b",
        "CREATE ZONE a",
    ]
    batch, alone = MemoryUnitOfWork(*[None] * behind, trouble), MemoryUnitOfWork()
    if behind:
        for store in (batch, alone):
            CatalogService(store).execute(parse_ddl("CREATE ZONE first"), nodes(3))
    if trouble not in (None, lost_before):
        CatalogService(alone).execute(parse_ddl("CREATE ZONE q"), nodes(3))
    runs = service(batch).execute_together(script_of(text, nodes(3)) for text in texts)
    singles = [service(alone).execute_together([script_of(text, nodes(3))])[0] for text in texts]
    for run, single in zip(runs, singles, strict=True):
        assert run.done == single.done
        assert str(run.error) == str(single.error)
        assert getattr(run.error, "statement", None) == getattr(single.error, "statement", None)
    assert batch.snapshots == alone.snapshots


def test_new_zones_get_ids_above_what_nodes_hold() -> None:
    """A default zone, too; ids that the catalog has given itself stay in order."""
    held = ZoneId(0)
    store = MemoryUnitOfWork()
    above = CatalogService(store, held_zone=lambda: held)
    above.execute(parse_ddl("CREATE ZONE a"), nodes(3))
    held = ZoneId(7)
    above.execute(parse_ddl("CREATE ZONE b; CREATE ZONE c; ALTER ZONE a SET (REPLICAS 3)"), nodes(3))
    above.execute(parse_ddl("CREATE TABLE t (id INT PRIMARY KEY)"), nodes(3))
    held = ZoneId(8)
    above.execute(parse_ddl("CREATE ZONE d"), nodes(3))
    snapshot = store.snapshots[-1]
    assert {zone.name: zone.zone_id for zone in snapshot.zones} == {
        "A": 1,
        "B": 8,
        "C": 9,
        "Default": 10,
        "D": 11,
    }
    assert snapshot.next_zone_id == 12
