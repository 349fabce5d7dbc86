"""Requests of people about zones of store servers: rest, work, the reset of what was lost. One event of the
ring each.

No leadership is needed: any process may append, as every event is guarded by the ring's end. The servers carry
it out with an exchange, whose result says what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from catalog.core.errors import ErrorKind, RefusedError, StoreError
from catalog.core.zone import DEFAULT_ENGINE, STORE_ENGINE, Zone, ZoneId
from rebalance.controllers.recovery import PartitionRestart
from rebalance.controllers.ring_events import RingEvents
from rebalance.controllers.ring_mirror import RingReader
from rebalance.core.keyspace.epoch import EpochRecord
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import RecordNotReadableError, readable
from rebalance.core.keyspace.txn import as_read
from rebalance.core.partition_maps.topology_version import Cluster, TopologyVersion, Trigger
from rebalance.core.recovery.recovery_plan import RestartPlan
from rebalance.exchange.core.exchange_messages import PartitionOutcome
from rebalance.hosting.tls import TlsFiles
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Metastore
from rebalance.store.core.ring_keeper import AppendZones
from rebalance.store.core.ring_records import RingState
from rebalance.store.core.store_messages import RefillAnswer
from rebalance.store.shell.store_client import StoreChannel, StoreUnreachableError, server_url

ROUNDS_MAX = 20
"""Maximum rounds: others append at the same time, and as often it is decided anew."""
SEEN_S = 5.0
WAIT_S = 15.0
ASK_S = 5.0
"""Seconds for a store server's answer."""


LossOutcome = Literal["OWNED", "LOST", "WAITING", "REQUESTED"]


@dataclass(frozen=True, slots=True)
class RestRequest:
    """``is_active``: what the zone is to be. ``version``: of the event that was appended; None: it was so
    already. ``is_done``: its exchange has ended."""

    zone: Zone
    is_active: bool
    version: TopologyVersion | None = None
    is_done: bool = True


@dataclass(frozen=True, slots=True)
class LossReset:
    """Reset of a partition that was lost or given up. ``is_done``: the exchange has ended; then ``after`` says
    who owns it now."""

    partition: int
    version: TopologyVersion
    is_done: bool
    after: PartitionOutcome

    @property
    def outcome(self) -> LossOutcome:
        """OWNED; LOST where a member of the in-sync set went meanwhile; WAITING where no node that lives is to
        have a copy; REQUESTED while it goes on."""
        if not self.is_done:
            return "REQUESTED"
        if self.after.is_lost:
            return "LOST"
        return "OWNED" if self.after.effective else "WAITING"

    @property
    def owners(self) -> tuple[str, ...]:
        return self.after.in_sync if self.outcome == "OWNED" else ()

    @property
    def detail(self) -> str:
        if not self.is_done:
            return f"exchange {self.version} goes on: see SYSTEM.EXCHANGES"
        if self.outcome == "OWNED":
            return ""
        if self.outcome == "WAITING":
            return "no server of its target takes part: ask again once the zone is placed on nodes that live"
        return f"a server of its in-sync set ({', '.join(self.after.in_sync)}) went meanwhile: ask again"


@dataclass(eq=False)
class StoreRequests:
    """Methods raise RefusedError (ENGINE_UNSUPPORTED, CLUSTER_NOT_IDLE, RECOVERY_NOT_NEEDED), StoreError while
    nothing may be written or the ring cannot be read, and MetastoreError.

    ``mirror``: of the whole keyspace, over which ``ring`` reads. ``is_store``: whether a zone that the ring
    does not have yet is one of store servers."""

    metastore: Metastore
    keyspace: Keyspace
    mirror: KeyspaceMirror
    ring: RingReader
    is_store: Callable[[ZoneId], bool]
    wait_s: float = WAIT_S
    tls: TlsFiles | None = None

    def __post_init__(self) -> None:
        self._events = RingEvents(self.metastore, self.keyspace, self.ring)

    def keeps(self, zone: Zone) -> bool:
        """Check that store servers keep the zone."""
        return zone.zone_id in self._state().cluster.zones or self.is_store(zone.zone_id)

    def refuse_store(self, zone: Zone, instead: str) -> None:
        """Refuse what only groups have. Raises RefusedError (ENGINE_UNSUPPORTED)."""
        if self.keeps(zone):
            message = f"the engine {STORE_ENGINE} of zone {zone.name} has no groups; accepted: {instead}"
            raise RefusedError(ErrorKind.ENGINE_UNSUPPORTED, message)

    async def set_active(self, zone: Zone, *, is_active: bool) -> RestRequest:
        """Open the zone's files, or let them rest. A zone that is so already stays untouched."""
        trigger = Trigger.ACTIVATE if is_active else Trigger.DEACTIVATE

        def is_due() -> bool:
            return (zone.zone_id in self._cluster(zone).open_zones) is not is_active

        version = await self._append(zone, trigger, is_due)
        if version is None:
            return RestRequest(zone, is_active)
        return RestRequest(zone, is_active, version, await self._is_over(version))

    async def reset_lost(self, zone: Zone, confirmed_dead: Collection[str] = ()) -> list[LossReset]:
        """Lost partitions may be used as they are: members of their in-sync sets that are back own again; where
        none is, the copy with most does. One that lost a member meanwhile stays lost. ``confirmed_dead``: nor
        are these servers waited for any more.

        Raises RefusedError besides: LOSS_NOT_CONFIRMED for a server that takes part, or that nothing waits
        for."""
        dead, numbers = frozenset(confirmed_dead), list[int]()

        def is_due() -> bool:
            servers = self._cluster(zone).servers.keys()
            outcomes = self.ring.outcomes(zone.zone_id)
            waiting = {number: _awaited(outcome, servers) for number, outcome in enumerate(outcomes)}
            _check_dead(zone, dead, servers, waiting.values())
            numbers[:] = [
                number
                for number, outcome in enumerate(outcomes)
                if outcome.is_lost or (waiting[number] and waiting[number] <= dead)
            ]
            if not numbers:
                raise RefusedError(ErrorKind.RECOVERY_NOT_NEEDED, _nothing_lost(zone, waiting.values()))
            return True

        version = await self._append(zone, Trigger.LOSS_RESET, is_due, dead)
        assert version is not None
        is_done = await self._is_over(version)
        outcomes = self.ring.outcomes(zone.zone_id)
        return [LossReset(number, version, is_done, outcomes[number]) for number in numbers]

    async def refill(
        self, zone: Zone, numbers: Sequence[int], nodes: Sequence[str], *, dry_run: bool = False
    ) -> list[PartitionRestart]:
        """One node's copies of the partitions (empty: of all that it has in sync) leave their in-sync sets, are
        emptied and filled again from the others. Raises RefusedError besides: NODE_SET_ILLEGAL,
        NOT_ENOUGH_ALIVE_NODES where nobody else is in sync; then nothing was asked."""
        self._cluster(zone)
        shown = self.ring.shown
        if len(nodes) != 1:
            message = f"a restart with clean-up takes one node, not {len(nodes)} ({', '.join(nodes) or 'none'})"
            raise RefusedError(ErrorKind.NODE_SET_ILLEGAL, message)
        (node,) = nodes
        in_sync = {number: shown.outcome(zone.zone_id, number).in_sync for number in range(zone.partitions)}
        chosen = numbers or [number for number, names in in_sync.items() if node in names]
        for number in chosen:
            names = in_sync[number]
            if node not in names:
                message = f"{node} is not in sync in partition {number} ({', '.join(names) or 'nobody'} is)"
                raise RefusedError(ErrorKind.NODE_SET_ILLEGAL, message)
            if not shown.servers & set(names) - {node}:
                raise _last_copy(node, number)
        if not chosen:
            raise RefusedError(ErrorKind.NODE_SET_ILLEGAL, f"{node} has no copy of zone {zone.name} in sync")
        if not dry_run:
            await self._ask_refills(zone, node, chosen)
        return [PartitionRestart(number, RestartPlan((node,), True)) for number in chosen]

    async def _ask_refills(self, zone: Zone, node: str, numbers: Sequence[int]) -> None:
        before = self.mirror.get(self.keyspace.last_result)
        address = self.ring.address(node)
        if address is None or node not in self.ring.shown.servers:
            message = f"the store server of {node} takes no part"
            raise RefusedError(ErrorKind.NOT_ENOUGH_ALIVE_NODES, message)
        channel = StoreChannel(server_url(address.host, address.port, node, address.incarnation), self.tls)
        try:
            refills = tuple((zone.zone_id, number) for number in numbers)
            answers = (await channel.copies(ASK_S, refills)).refills
        except StoreUnreachableError as error:
            raise RefusedError(ErrorKind.NOT_ENOUGH_ALIVE_NODES, str(error)) from error
        finally:
            await channel.close()
        if not answers:
            message = f"the store server of {node} is of an earlier release; accepted: one of this release"
            raise RefusedError(ErrorKind.ENGINE_UNSUPPORTED, message)
        for number, answer in zip(numbers, answers, strict=True):
            if answer is RefillAnswer.LAST_COPY:
                raise _last_copy(node, number)
            if answer is RefillAnswer.NO_COPY:
                message = f"{node} owns no copy of partition {number} that is to stay"
                raise RefusedError(ErrorKind.NODE_SET_ILLEGAL, message)

        def is_asked() -> bool:
            """Check that an exchange has ended since, with the copies out of their sets."""
            outcomes = self.ring.outcomes(zone.zone_id)
            left = not any(node in outcomes[number].in_sync for number in numbers)
            return left and self.mirror.get(self.keyspace.last_result) != before

        await self.mirror.wait_until(is_asked, self.wait_s)

    def _state(self) -> RingState:
        try:
            return self.ring.state
        except (RecordNotReadableError, ValueError) as error:
            message = f"the ring of the store servers cannot be read: {error}"
            raise StoreError(ErrorKind.RECORD_NOT_READABLE, message) from error

    def _cluster(self, zone: Zone) -> Cluster:
        """Return the cluster with the zone in it."""
        cluster = self._state().cluster
        if zone.zone_id in cluster.zones:
            return cluster
        if self.is_store(zone.zone_id):
            message = f"the store servers have not opened zone {zone.name} yet; accepted: a zone that is placed"
            raise RefusedError(ErrorKind.CLUSTER_NOT_IDLE, message)
        message = (
            f"zone {zone.name} is kept by the engine {DEFAULT_ENGINE}, or by none yet; "
            f"accepted: a zone of the engine {STORE_ENGINE}"
        )
        raise RefusedError(ErrorKind.ENGINE_UNSUPPORTED, message)

    async def _append(
        self, zone: Zone, trigger: Trigger, is_due: Callable[[], bool], dead: frozenset[str] = frozenset()
    ) -> TopologyVersion | None:
        """The version of the event; None where none is due."""
        for _ in range(ROUNDS_MAX):
            if not is_due():
                return None
            state, seen = self._state(), self.mirror.revision
            epoch = self.mirror.get(self.keyspace.epoch)
            halted = (readable(epoch, EpochRecord.decode) or EpochRecord()).halted
            if halted:
                raise StoreError(ErrorKind.METASTORE_DIVERGED, f"nothing is written: {halted}")
            fence = as_read(self.keyspace.epoch, epoch)
            action = AppendZones(state.number, trigger, (state.cluster.zones[zone.zone_id],), dead)
            revision = await self._events.act(action, fence)
            # What came before it, where it was refused, is in the mirror a moment later.
            await self._seen(revision or seen + 1)
            if revision:
                return state.cluster.version_after(trigger)
        message = f"other events kept coming; nothing of zone {zone.name} was changed"
        raise RefusedError(ErrorKind.CLUSTER_NOT_IDLE, message)

    async def _seen(self, revision: int) -> None:
        await self.mirror.wait_until(lambda: self.mirror.revision >= revision, SEEN_S)

    async def _is_over(self, version: TopologyVersion) -> bool:
        """Waits until the exchange of an event has a result; False: it takes longer, and goes on."""

        def is_over() -> bool:
            last = self.mirror.get(self.keyspace.last_result)
            return last is not None and TopologyVersion.parse(last.value.decode()) >= version

        if not self._state().cluster.servers:
            return False
        return await self.mirror.wait_until(is_over, self.wait_s)


def _awaited(outcome: PartitionOutcome, servers: AbstractSet[str]) -> frozenset[str]:
    """Members of the set that a partition waits for; none where it is lost, or somebody leads it."""
    if outcome.is_lost or servers & set(outcome.effective[:1]):
        return frozenset()
    return frozenset(outcome.in_sync) - servers


def _check_dead(
    zone: Zone, dead: frozenset[str], servers: AbstractSet[str], waiting: Collection[frozenset[str]]
) -> None:
    living, awaited = sorted(dead & servers), frozenset().union(*waiting)
    if living:
        message = f"{', '.join(living)} takes part, but was confirmed as dead"
    elif others := sorted(dead - awaited):
        message = f"no partition of zone {zone.name} waits for {', '.join(others)}"
    else:
        return
    message += f"; waited for: {', '.join(sorted(awaited)) or 'nobody'}"
    raise RefusedError(ErrorKind.LOSS_NOT_CONFIRMED, message)


def _nothing_lost(zone: Zone, waiting: Collection[frozenset[str]]) -> str:
    message = f"no partition of zone {zone.name} is lost"
    if awaited := sorted(frozenset().union(*waiting)):
        count = sum(map(bool, waiting))
        message += f"; {count} wait for servers that are away: {', '.join(awaited)}"
        message += ". Start these; if they are known to be dead, confirm all that a partition waits for"
    return message


def _last_copy(node: str, number: int) -> RefusedError:
    message = f"nobody else who lives is in sync in partition {number}: the data of {node} is needed"
    return RefusedError(ErrorKind.NOT_ENOUGH_ALIVE_NODES, message)
