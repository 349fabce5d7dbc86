"""One simulated server: requests, redirects to donors, state changes, and the units it steals.

A donor has no code of its own: it answers reads and puts that skip the check of ownership, as any server does.
Requests of clients pass a gate that a state change closes. Calls between servers do not, or two servers that
steal from each other would wait for each other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from rebalance.groups.calls.key_hash import partition_of
from simulator.stealing.core.steal_checks import NodeReport, ServerOptions
from simulator.stealing.core.steal_cluster import ClusterMetadata, StoreDefinition, StoreKind
from simulator.stealing.core.steal_plan import StealUnit
from simulator.stealing.core.steal_schedule import SweepFate, decide_on_sweep
from simulator.stealing.core.steal_state_change import BatchId, StealStateChange, rollback_of_parts
from simulator.stealing.core.vector_clock import Versioned
from simulator.stealing.simulation.gate import Gate
from simulator.stealing.simulation.steal_errors import (
    InjectedError,
    InvalidMetadataError,
    NodeDownError,
    OrderRefusedError,
)
from simulator.stealing.simulation.steal_metadata import BatchRecord, ChangeOrder, ServerMetadata
from simulator.stealing.simulation.steal_stores import ReadOnlyStore, ReadWriteStore, Rows
from simulator.stealing.simulation.unit_view import Job, JobStatus, JobView

T = TypeVar("T")

SERVICE_S = 0.001
CHANGE_S = 0.002
"""Seconds that a request, and a part of a state change, take on a server that does nothing else."""
LOAD_FACTOR = 0.5
"""Each partition that is read from or written to a server's disk makes requests that much slower."""


class Around(Protocol):
    """Part of the world that a server reaches."""

    async def call(self, node: int, operation: Callable[[Server], Awaitable[T]]) -> T:
        """Raises NodeDownError, and what the operation raises there."""

    async def point(self, node: int, what: str) -> None:
        """A place where something may go wrong: raises InjectedError, or crashes the node."""

    def note(self, node: int, kind: str, detail: str = "") -> None: ...


class Server:
    """``read_only``, ``read_write``: its stores by name. ``redirected``: proxy gets by store; ``returned``:
    puts that went to a donor too. ``streams``: partitions that somebody reads whole here. ``copies``,
    ``copying``: partitions that are written here now, and the stores that they belong to."""

    def __init__(
        self,
        node: int,
        cluster: ClusterMetadata,
        stores: Iterable[StoreDefinition],
        rows: Mapping[str, Mapping[int, Mapping[str, str]]],
        options: ServerOptions,
        around: Around,
        start_unit: Callable[[int, Server, StealUnit, ClusterMetadata], Job],
    ) -> None:
        self._start_unit = start_unit
        self.node = node
        self.options = options
        self.around = around
        self.metadata = ServerMetadata(cluster)
        self.stores = {store.name: store for store in stores}
        self.read_write = {name: ReadWriteStore() for name in self._names(StoreKind.READ_WRITE)}
        self.read_only = {name: ReadOnlyStore(rows.get(name, {})) for name in self._names(StoreKind.READ_ONLY)}
        self.redirected: Counter[str] = Counter()
        self.returned: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.is_up = True
        self.incarnation = 1
        self.orders: set[asyncio.Task[Any]] = set()
        self._begin_afresh()

    def _names(self, kind: StoreKind) -> list[str]:
        return [name for name, store in self.stores.items() if store.kind is kind]

    def _begin_afresh(self) -> None:
        """Create the state that does not outlive a crash."""
        self.gate = Gate()
        self.jobs: dict[int, Job] = {}
        self.locked_donors: set[int] = set()
        self.streams: set[object] = set()
        self.copies = 0
        self.copying = 0
        self.store_places = asyncio.Semaphore(self.options.max_parallel_stores)
        self._taken: set[tuple[str, str]] = set()
        self._taking: set[int] = set()

    # Requests of clients

    async def get(self, store: str, key: str) -> tuple[Versioned, ...]:
        """Raises InvalidMetadataError, NodeDownError (also for a donor that is redirected to)."""
        async with self.gate.request():
            partition = self._owned_partition(store, key)
            await self._serve("get")
            await self._take(store, partition, key)
            return self.read_write[store].get(partition, key)

    async def get_all(self, store: str, keys: Iterable[str]) -> dict[str, tuple[Versioned, ...]]:
        """Get keys that this node all owns (VOL-073)."""
        return {key: await self.get(store, key) for key in keys}

    async def get_static(self, store: str, key: str) -> str | None:
        """Get a key of a read-only store; never redirected, as the swap brings every file at once."""
        async with self.gate.request():
            partition = self._owned_partition(store, key)
            await self._serve("get")
            return self.read_only[store].get(partition, key)

    async def put(
        self, store: str, key: str, version: Versioned, replicas: tuple[int, ...] | None = None
    ) -> None:
        """Raises also ObsoleteVersionError. Until the batch is committed the donor gets it too, before anybody
        gets the acknowledgement of the put: else a rollback would lose it.

        ``replicas``: the list that the client writes to. Another one than the node's own is refused, although
        the node is in both: each node of an old list may own the partition at its moment, and never all at one.
        """
        async with self.gate.request():
            partition = self._owned_partition(store, key)
            if replicas is not None and replicas != self._replicas(store, partition):
                message = f"partition {partition} of {store} is on {self._replicas(store, partition)}"
                raise InvalidMetadataError(f"{message} for node {self.node}, not on {replicas}")
            await self._serve("put")
            await self._take(store, partition, key)
            self.read_write[store].put(partition, key, version)
            donor = self.metadata.returns_to(store, partition)
            if donor is not None:
                self.returned[store] += 1
                await self.around.call(donor, lambda there: there.put_unchecked(store, key, (version,)))

    def partition(self, key: str) -> int:
        return partition_of(key, len(self.metadata.cluster.owners))

    def owns(self, store: str, partition: int) -> bool:
        return self.node in self._replicas(store, partition)

    def _replicas(self, store: str, partition: int) -> tuple[int, ...]:
        return self.metadata.cluster.replicas(partition, self.stores[store].replication)

    def _owned_partition(self, store: str, key: str) -> int:
        partition = self.partition(key)
        if not self.owns(store, partition):
            raise InvalidMetadataError(f"node {self.node} has no replica of partition {partition} of {store}")
        return partition

    async def _serve(self, kind: str) -> None:
        self.requests[kind] += 1
        await asyncio.sleep(SERVICE_S * (1 + LOAD_FACTOR * (len(self.streams) + self.copies)))

    async def _take(self, store: str, partition: int, key: str) -> None:
        """VOL-069..073: what the donor has of a key that was not copied yet is put here first.

        A key counts as taken only once a unit runs: before that a donor may still serve clients that have not
        heard of the change, and what it has may get newer.
        """
        donor = self.metadata.donor_of(store, partition)
        if donor is None or (store, key) in self._taken:
            return
        lasts, incarnation = donor in self._taking, self.incarnation
        self.redirected[store] += 1
        self.around.note(self.node, "Redirect", f"{store} {key} to {donor}")
        versions = await self.around.call(donor, lambda there: there.get_unchecked(store, key))
        if self.incarnation != incarnation:
            raise NodeDownError(f"node {self.node} has crashed since")
        self.read_write[store].put_all(partition, key, versions)
        if lasts:
            self._taken.add((store, key))

    # Calls of other servers: who owns what is not looked at

    async def get_unchecked(self, store: str, key: str) -> tuple[Versioned, ...]:
        self.requests["proxy get"] += 1
        return self.read_write[store].get(self.partition(key), key)

    async def put_unchecked(self, store: str, key: str, versions: tuple[Versioned, ...]) -> None:
        self.requests["proxy put"] += 1
        self.read_write[store].put_all(self.partition(key), key, versions)

    async def read_rows(self, store: str, partition: int, after: str, limit: int) -> Rows:
        return self.read_write[store].rows_after(partition, after, limit)

    async def read_files(self, store: str, partition: int) -> Mapping[str, str]:
        return self.read_only[store].fetch(partition)

    # Orders of a controller

    async def report(self) -> NodeReport:
        formats = {name: store.format for name, store in self.read_only.items()}
        known = self.metadata
        enabled = self.options.enable_rebalancing
        return NodeReport(
            self.node,
            known.cluster,
            known.state,
            known.steal_info,
            formats,
            enabled,
            known.unfinished,
            known.committed,
        )

    async def add_nodes(self, nodes: Iterable[int]) -> None:
        """VOL-026: they own nothing, so nobody's requests go elsewhere."""
        self.metadata.cluster = self.metadata.cluster.with_nodes(nodes)

    async def change_state(self, order: ChangeOrder) -> None:
        """All of it or nothing. Raises OrderRefusedError, InjectedError."""
        self._check_order(order)
        async with self.gate.change():
            self._check_order(order)
            earlier = self.metadata.record
            self.metadata.record = BatchRecord(order)
            try:
                for part in order.parts:
                    await asyncio.sleep(CHANGE_S)
                    await self.around.point(self.node, f"change {part.name}")
                    self._make(part, order)
            except InjectedError:
                self._take_back(rollback_of_parts(self.metadata.record.done))
                self.metadata.record = earlier
                raise
            done_earlier = () if earlier is None else earlier.done
            done = rollback_of_parts((*self.metadata.record.done, *done_earlier))
            self.metadata.record = BatchRecord(order, done, whole=True)
        self.around.note(self.node, "Changed", " ".join(part.name for part in order.parts))

    def _check_order(self, order: ChangeOrder) -> None:
        unfinished = self.metadata.unfinished
        if unfinished not in (None, order.batch):
            message = f"node {self.node} has not finished {unfinished}, and cannot begin {order.batch}"
            raise OrderRefusedError("BATCH_UNFINISHED", message)
        if self.metadata.cluster != order.before:
            message = f"node {self.node} has {self.metadata.cluster.encode()}, not {order.before.encode()}"
            raise OrderRefusedError("METADATA_DIFFERS", message)

    def _make(self, part: StealStateChange, order: ChangeOrder) -> None:
        record = self.metadata.record
        if record is None:
            return
        match part:
            case StealStateChange.REBALANCE:
                self.metadata.steal_info = order.units
                self._forget_taken()
            case StealStateChange.CLUSTER:
                self.metadata.cluster = order.after
            case StealStateChange.SWAP:
                for store in self.read_only.values():
                    store.swap()
        self.metadata.record = record.having(part)

    async def undo(self, batch: BatchId, parts: Iterable[StealStateChange]) -> None:
        """Takes back what was done for the batch, in the order of ``parts``; nothing when there is nothing.
        Raises OrderRefusedError once it is committed here."""
        self.around.note(self.node, "ToldToUndo", str(batch))
        if self.metadata.committed == batch:
            raise OrderRefusedError("COMMITTED", f"node {self.node} has committed {batch}: go forward")
        if self.metadata.unfinished != batch:
            return
        async with self.gate.change():
            self.stop_all()
            try:
                for part in parts:
                    await asyncio.sleep(CHANGE_S)
                    await self.around.point(self.node, f"undo {part.name}")
                    self._take_back([part])
            except InjectedError:
                self.metadata.redirect_again()
                raise
            self._end_record()
        self.around.note(self.node, "Undone", str(batch))

    def _take_back(self, parts: Iterable[StealStateChange]) -> None:
        for part in parts:
            record = self.metadata.record
            if record is None or part not in record.done:
                continue
            match part:
                case StealStateChange.REBALANCE:
                    self.metadata.steal_info = ()
                    self._forget_taken()
                case StealStateChange.CLUSTER:
                    self.metadata.cluster = record.order.before
                case StealStateChange.SWAP:
                    for store in self.read_only.values():
                        store.swap_back()
            self.metadata.record = record.lacking(part)
            self.around.note(self.node, "TookBack", part.name)

    def _end_record(self) -> None:
        self.metadata.record = None
        for store in self.read_only.values():
            store.drop_fetched()

    def _forget_taken(self) -> None:
        self._taken.clear()
        self._taking.clear()

    async def redirect_again(self, batch: BatchId) -> None:
        """Begin a rollback, on every stealer: nothing counts as copied any more, so no request is answered from
        copies that may get old as soon as the first node is back."""
        if self.metadata.unfinished == batch:
            async with self.gate.change():
                self.stop_all()
                self._forget_taken()
                self.metadata.redirect_again()

    async def commit(self, batch: BatchId) -> None:
        """Every copy of the batch is complete; there is no way back, and puts go to no donor any more."""
        await self.around.point(self.node, "commit")
        if self.metadata.unfinished == batch:
            for store in self.read_only.values():
                store.keep_current()
            self.metadata.steal_info = ()
            self._forget_taken()
            self.metadata.record = None
            self.metadata.committed = batch
            self.around.note(self.node, "Committed", str(batch))

    async def delete(self, store: str, partition: int) -> None:
        """VOL-094. Raises OrderRefusedError for what the node owns."""
        if self.owns(store, partition):
            message = f"node {self.node} has a replica of partition {partition} of {store}: it is not deleted"
            raise OrderRefusedError("OWNED", message)
        held: ReadWriteStore | ReadOnlyStore = self.read_write.get(store) or self.read_only[store]
        held.delete(partition)
        self.around.note(self.node, "Deleted", f"{store} {partition}")

    # Units of migration

    async def start_unit(self, unit: StealUnit) -> int:
        """The id of a new job. Raises OrderRefusedError when the state change was not done (VOL-061), or the
        donor is locked by another unit of this stealer (VOL-062)."""
        planned = next((steal for steal in self.metadata.steal_info if steal.donor == unit.donor), None)
        record = self.metadata.record
        if record is None or planned is None or not set(unit.names) <= set(planned.names):
            message = f"node {self.node} has no steal info for {unit.describe()}: change its state first"
            raise OrderRefusedError("NOT_REBALANCING", message)
        if unit.donor in self.locked_donors:
            message = f"node {self.node} is stealing from node {unit.donor} already"
            raise OrderRefusedError("DONOR_LOCKED", message)
        self.locked_donors.add(unit.donor)
        self._taking.add(unit.donor)
        number = max(self.jobs, default=0) + 1
        self.jobs[number] = self._start_unit(number, self, planned.only(unit.names), record.order.before)
        return number

    async def list_jobs(self) -> tuple[JobView, ...]:
        """VOL-089."""
        return tuple(job.view for job in self.jobs.values())

    async def job(self, number: int) -> JobView:
        """Raises OrderRefusedError for an id that is not known."""
        return self._job(number).view

    async def stop_jobs(self, numbers: str) -> None:
        """``numbers``: ids with commas between (VOL-095). Raises OrderRefusedError; no job is stopped then."""
        texts = [part.strip() for part in numbers.split(",")]
        wrong = [part for part in texts if not part.isdecimal()]
        if wrong:
            raise OrderRefusedError("BAD_IDS", f"job ids are numbers with commas between; found {wrong[0]!r}")
        for job in [self._job(int(part)) for part in texts]:
            job.stop()

    def _job(self, number: int) -> Job:
        if number not in self.jobs:
            message = f"node {self.node} has no job {number}; it has {sorted(self.jobs)}"
            raise OrderRefusedError("NO_SUCH_JOB", message)
        return self.jobs[number]

    def stop_all(self) -> None:
        for job in self.jobs.values():
            job.stop()

    async def clear_rebalancing(self) -> None:
        """VOL-096. Raises OrderRefusedError while a unit runs, or while the node owns partitions that only its
        donors have whole."""
        running = [number for number, job in self.jobs.items() if job.view.status is JobStatus.RUNNING]
        if running:
            raise OrderRefusedError("JOBS_RUNNING", f"node {self.node} runs jobs {running}: stop them first")
        record = self.metadata.record
        if record is not None and record.owns_more:
            message = f"node {self.node} owns what it has not copied: take back {record.order.batch} instead"
            raise OrderRefusedError("CLUSTER_CHANGED", message)
        self.metadata.steal_info = ()
        self._end_record()
        self.around.note(self.node, "Cleared")

    def took(self, store: str, key: str) -> None:
        self._taken.add((store, key))

    def store_done(self, unit: StealUnit, store: str) -> None:
        self.metadata.store_done(unit.donor, store)
        self.around.note(self.node, "StoreDone", f"{store} from {unit.donor}")

    async def sweep(self) -> bool:
        """A job that reads the whole disk; False when it is refused. It waits while partitions are read
        (VOL-105, VOL-106)."""
        while True:
            fate = decide_on_sweep(self.metadata.state, len(self.streams))
            self.around.note(self.node, "Sweep", fate.value)
            if fate is not SweepFate.DELAYED:
                return fate is SweepFate.RUN
            await asyncio.sleep(SERVICE_S * 50)

    def ended_order(self, order: asyncio.Task[Any]) -> None:
        """Forget an order that has ended, and read its error, which an order of a dead controller would leave
        unread."""
        self.orders.discard(order)
        if not order.cancelled():
            order.exception()

    # Crashes

    def crash(self) -> None:
        self.is_up = False
        for task in [*self.orders, *(job.task for job in self.jobs.values())]:
            task.cancel()
        self.around.note(self.node, "Crashed")

    def restart(self) -> None:
        """A state change that was being made is taken back, and what was copied is not relied on."""
        self.is_up = True
        self.incarnation += 1
        self._begin_afresh()
        record = self.metadata.record
        if record is not None and not record.whole:
            self._take_back(rollback_of_parts(record.done))
            self._end_record()
        self.metadata.redirect_again()
        self.around.note(self.node, "Restarted")
