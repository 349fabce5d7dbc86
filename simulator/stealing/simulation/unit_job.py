"""One unit of migration on its stealer: it copies the stores that a donor gives, several at once, with retries.

Source: VOL-061..064, VOL-098..101.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from simulator.stealing.core.steal_cluster import ClusterMetadata, StoreDefinition, StoreKind
from simulator.stealing.core.steal_plan import StealUnit, needs_copy
from simulator.stealing.core.steal_schedule import StealProgress
from simulator.stealing.simulation.steal_errors import InjectedError, NodeDownError
from simulator.stealing.simulation.steal_server import Server
from simulator.stealing.simulation.steal_stores import Rows
from simulator.stealing.simulation.unit_view import JobStatus, JobView

CHUNK = 4
"""Keys that are read from a donor at once."""
RETRY_S = 0.05


class UnitJob:
    """``view`` is what others see of it. ``before``: the metadata before the batch."""

    def __init__(self, number: int, stealer: Server, unit: StealUnit, before: ClusterMetadata) -> None:
        self._stealer = stealer
        self.unit = unit
        self._before = before
        self._left = list(unit.names)
        progress = StealProgress(0, len(unit.names))
        self.view = JobView(number, unit.describe(), JobStatus.RUNNING, progress)
        self.task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Stop the job; one that has ended stays as it is."""
        if self.view.status is JobStatus.RUNNING:
            self._end(JobStatus.STOPPED)
            self.task.cancel()

    def _end(self, status: JobStatus, error: str = "") -> None:
        self.view = replace(self.view, status=status, error=error)
        self._stealer.locked_donors.discard(self.unit.donor)
        self._note("UnitEnded", f"{self.unit.describe()} {status.value}")

    def _note(self, kind: str, detail: str) -> None:
        self._stealer.around.note(self._stealer.node, kind, detail)

    async def _run(self) -> None:
        options = self._stealer.options
        self._note("UnitBegan", self.unit.describe())
        try:
            async with asyncio.timeout(options.timeout_s):
                error = await self._attempt_all(options.max_attempts)
        except TimeoutError:
            error = f"not done within rebalancing.timeout.seconds, {options.timeout_s:g}"
        except Exception as unexpected:
            self._note("Bug", repr(unexpected))
            error = repr(unexpected)
        if self.view.status is JobStatus.RUNNING:
            self._end(JobStatus.FAILED if error else JobStatus.COMPLETED, error)

    async def _attempt_all(self, attempts_max: int) -> str:
        """Copy all stores, in several attempts; the last error, or empty. A store that is done is not copied
        again."""
        error = ""
        for attempt in range(1, attempts_max + 1):
            self.view = replace(self.view, attempts=attempt)
            copies = [self._copy_store(store) for store in self._left]
            results = await asyncio.gather(*copies, return_exceptions=True)
            failures = [result for result in results if result is not None]
            for failure in failures:
                if not isinstance(failure, NodeDownError | InjectedError):
                    raise failure
            if not failures:
                return ""
            error = f"{failures[0]} (attempt {attempt} of {attempts_max})"
            if attempt < attempts_max:
                await asyncio.sleep(RETRY_S)
        return error

    async def _copy_store(self, name: str) -> None:
        store = self._stealer.stores[name]
        async with self._stealer.store_places:
            self._note("StoreBegan", f"{name} from {self.unit.donor}")
            self._stealer.copying += 1
            try:
                await self._stealer.around.point(self._stealer.node, f"copy {name}")
                await self._copy_partitions(store)
            finally:
                self._stealer.copying -= 1
            self._left.remove(name)
            total = self.view.progress.total
            self.view = replace(self.view, progress=StealProgress(total - len(self._left), total))
            self._stealer.store_done(self.unit, name)

    async def _copy_partitions(self, store: StoreDefinition) -> None:
        for partition in needs_copy(self.unit, store, self._before, self._stealer.options.optimization):
            async with self._streaming():
                if store.kind is StoreKind.READ_ONLY:
                    await self._copy_files(store.name, partition)
                else:
                    await self._copy_rows(store.name, partition)

    @asynccontextmanager
    async def _streaming(self) -> AsyncIterator[None]:
        """The donor sees somebody who reads a partition, and nothing more; that ends also when its answer got
        lost."""
        token = object()
        opened: list[set[object]] = []

        async def begin(donor: Server) -> None:
            donor.streams.add(token)
            opened.append(donor.streams)

        self._stealer.copies += 1
        try:
            await self._stealer.around.call(self.unit.donor, begin)
            yield
        finally:
            self._stealer.copies -= 1
            for streams in opened:
                streams.discard(token)

    async def _copy_rows(self, store: str, partition: int) -> None:
        after = ""
        while True:
            rows = await self._rows_after(store, partition, after)
            if not rows:
                return
            await asyncio.sleep(len(rows) / self._stealer.options.copy_rate)
            for key, versions in rows:
                self._stealer.read_write[store].put_all(partition, key, versions)
                self._stealer.took(store, key)
            self._count(len(rows))
            after = rows[-1][0]

    async def _rows_after(self, store: str, partition: int, after: str) -> Rows:
        return await self._stealer.around.call(
            self.unit.donor, lambda donor: donor.read_rows(store, partition, after, CHUNK)
        )

    async def _copy_files(self, store: str, partition: int) -> None:
        files = await self._stealer.around.call(
            self.unit.donor, lambda donor: donor.read_files(store, partition)
        )
        await asyncio.sleep(len(files) / self._stealer.options.copy_rate)
        self._stealer.read_only[store].receive(partition, files)
        self._count(len(files))

    def _count(self, copied: int) -> None:
        self.view = replace(self.view, copied=self.view.copied + copied)
