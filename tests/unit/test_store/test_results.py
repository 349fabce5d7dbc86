"""The outcome of an exchange is committed before anybody is told of it."""

from __future__ import annotations

from typing import Any

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import CopyReport, CopyState, SingleMap, StorePosition
from rebalance.core.partition_maps.topology_version import Cluster, DiscoveryEvent, Trigger, ZoneSpec
from rebalance.exchange.core.exchange_effects import (
    Apply,
    AwaitUpdates,
    Effect,
    KeepResult,
    Prepare,
    Send,
    TakeTopology,
)
from rebalance.exchange.core.exchange_messages import FullMessage, Lists, ResultRecord, ResultState
from rebalance.exchange.core.exchange_states import Phase
from rebalance.exchange.core.exchange_worker import ExchangeWorker

ZONE = ZoneSpec(ZoneId(1), 1, 2)


def lists(zone: ZoneSpec, nodes: tuple[str, ...]) -> Lists:
    return (tuple(nodes[: zone.copies]),)


class Servers:
    """Workers that answer everything at once, but for the commit of results. ``kept``: what was asked to be
    committed, by server."""

    def __init__(self, names: str) -> None:
        self.cluster = Cluster()
        self.workers: dict[str, ExchangeWorker] = {}
        self.kept: list[tuple[str, ResultRecord]] = []
        self.sent: list[tuple[str, FullMessage]] = []
        self.applied: dict[str, list[FullMessage]] = {}
        for name in names:
            self.join(name)
            self.commit()

    def join(self, name: str) -> None:
        before = self.cluster
        zones = (ZONE,) if not before.servers else ()
        worker = ExchangeWorker(name, len(before.servers) + 1, before, lists, results=self.results())
        self.workers[name] = worker
        self.event(Trigger.NODE_JOINED, node=name, order=worker.order, zones=zones)

    def results(self) -> ResultState:
        for worker in self.workers.values():
            if worker.held.results is not None:
                return worker.held.results
        return ResultState()

    def event(self, trigger: Trigger, **more: Any) -> None:
        event = DiscoveryEvent(self.cluster.version_after(trigger), trigger, **more)
        self.cluster = self.cluster.after(event)
        for name, worker in list(self.workers.items()):
            self.carry_out(name, worker.discovered(event))

    def carry_out(self, name: str, effects: list[Effect]) -> None:
        worker = self.workers[name]
        for effect in effects:
            match effect:
                case Send(to, message) if to in self.workers:
                    if isinstance(message, FullMessage):
                        self.sent.append((to, message))
                    self.carry_out(to, self.workers[to].received(message))
                case TakeTopology(version):
                    self.carry_out(name, worker.topology_taken(version))
                case AwaitUpdates(version, _):
                    self.carry_out(name, worker.updates_ended(version))
                case Prepare(version, _):
                    state = CopyState.OWNING if name in "ab" and worker.held.maps else CopyState.MOVING
                    copies = {0: CopyReport(state)} if name in "ab" else {}
                    single = SingleMap(ZoneId(1), name, version, 1, copies)
                    history = {(ZoneId(1), 0): StorePosition(0, 0)}
                    self.carry_out(name, worker.prepared(version, {ZoneId(1): single}, history))
                case KeepResult(record):
                    self.kept.append((name, record))
                case Apply(message, _):
                    self.applied.setdefault(name, []).append(message)
                case _:
                    pass

    def commit(self) -> None:
        name, record = self.kept[-1]
        self.carry_out(name, self.workers[name].result_kept(record.version))

    def die(self, name: str) -> None:
        del self.workers[name]
        self.event(Trigger.NODE_FAILED, node=name)


def test_nobody_is_told_before_the_result_is_committed() -> None:
    servers = Servers("abc")
    before = len(servers.sent)
    servers.event(Trigger.SNAPSHOT_CREATE)
    running = servers.workers["a"].running
    assert running is not None
    assert running.phase is Phase.COMMIT
    assert len(servers.sent) == before
    servers.commit()
    assert {to for to, _ in servers.sent[before:]} == {"b", "c"}
    assert all(item.held.version == servers.cluster.version for item in servers.workers.values())


def test_a_coordinator_that_takes_over_uses_the_result_that_it_comes_upon() -> None:
    """The first coordinator committed that a and b are in sync, sent that to no server, and died."""
    servers = Servers("abc")
    servers.event(Trigger.SNAPSHOT_CREATE)
    name, committed = servers.kept[-1]
    assert name == "a"
    servers.die("a")
    successor, own = servers.kept[-1]
    assert successor == "b"
    assert own.previous == committed.previous
    assert own != committed
    before = len(servers.sent)
    servers.carry_out("b", servers.workers["b"].result_exists([committed]))
    # Exactly what was committed, for exactly those events; the failure is an exchange of its own after it.
    assert [item.version for _, item in servers.sent[before:]] == [committed.version]
    assert servers.kept[-1][1].previous == committed.version
    servers.commit()
    assert servers.workers["b"].held.results == servers.workers["c"].held.results
    assert servers.results().outcomes[ZoneId(1)][0].in_sync == ("b",)


def test_an_answer_that_was_lost_is_no_other_result() -> None:
    servers = Servers("ab")
    servers.event(Trigger.SNAPSHOT_CREATE)
    name, record = servers.kept[-1]
    again = servers.workers[name].tick()
    assert again == [KeepResult(record)]
    servers.carry_out(name, servers.workers[name].result_exists([record]))
    assert servers.workers["b"].held.version == record.version


def test_in_sync_sets_of_a_deactivated_zone_hold() -> None:
    servers = Servers("ab")
    before = servers.results().outcomes
    assert before[ZoneId(1)][0].in_sync
    servers.event(Trigger.DEACTIVATE)
    servers.commit()
    assert servers.results().outcomes == before


def test_a_server_with_other_ideal_lists_asks_for_them() -> None:
    """PME-036: the digests in the full message say that the coordinator means other lists."""
    servers = Servers("ab")
    other = ExchangeWorker(
        "c", 3, servers.cluster, lambda zone, nodes: (tuple(reversed(nodes)),), results=servers.results()
    )
    servers.workers["c"] = other
    servers.event(Trigger.NODE_JOINED, node="c", order=3)
    servers.commit()
    assert other.held.version == servers.cluster.version
    assert other.held.affinities == servers.workers["a"].held.affinities
