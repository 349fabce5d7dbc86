"""Watch over two stores that must tell one truth: the catalog's database and the metastore.

Every server looks each second whether the two still belong together. When one of them went back in time (it
was restored from a backup), this server refuses statements, publishes no intent, and writes into the
``epoch`` key that nothing may be written, which controllers and other servers follow. That ends when the
right store is back, or when an operator adopts what is there: ``adopt`` raises the epoch and publishes every
zone anew. ``HeldZones`` keeps it from giving zone ids again that nodes' disks have copies of, whatever
catalog and metastore know.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog

from catalog.core.errors import ErrorKind, RefusedError, StoreError
from catalog.core.level import NO_LEVEL
from catalog.core.metastore_mark import AdoptedVersion, CatalogTruth, MetastoreMark
from catalog.core.zone import NO_ZONE, ZoneId, ZoneIntent
from rebalance.core.keyspace.epoch import FIRST_EPOCH, Divergence, EpochRecord, MetastoreTruth, find_divergence
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable, read, readable
from rebalance.core.keyspace.records import NodeRecord
from rebalance.core.keyspace.txn import Get, KeyValue, Put, Txn, TxnResult, as_read
from rebalance.hosting.background import Background
from rebalance.metastore.guarded_update import update_key
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.metastore.unreadable_log import UnreadableLog
from rebalance.ports.metastore import Condition, Metastore, MetastoreCondition, MetastoreError

log = structlog.get_logger(__name__)

CHECK_S = 1.0
MIRROR_S = 10.0
MARK_CHECKS = 5
"""A changed store is marked with every so many checks: each mark is a write to both stores."""


class AsyncMarks(Protocol):
    """The catalog's memory of the metastore as the guard needs it. Raises StoreError."""

    async def truth(self, newest: ZoneIntent | None) -> CatalogTruth: ...

    async def record_mark(self, mark: MetastoreMark) -> None: ...

    async def adopt(
        self, intents: Sequence[ZoneIntent], mark: MetastoreMark, held: ZoneId
    ) -> AdoptedVersion: ...


class Watched(Metastore, MetastoreCondition, Protocol):
    """A metastore that also tells how it is."""


@dataclass(frozen=True, slots=True)
class ShownState:
    """State that the requester of an adoption has seen. ``kind`` and ``reason`` are empty when both agree."""

    epoch: int
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class StoreState:
    """Result of the last check. ``full`` is the metastore's own words, empty when there is room. While the
    epoch is ``unreadable`` nobody can tell whether the stores agree, and nothing is written. ``level``: the
    release level in force."""

    epoch: int = FIRST_EPOCH
    catalog_version: int = 0
    revision: int = 0
    cluster_id: str = ""
    divergence: Divergence | None = None
    full: str = ""
    unreadable: Unreadable | None = None
    level: int = NO_LEVEL

    @property
    def is_agreed(self) -> bool:
        return self.divergence is None and self.unreadable is None

    @property
    def shown(self) -> ShownState:
        divergence = self.divergence
        return ShownState(
            self.epoch, divergence.kind.value if divergence else "", divergence.reason if divergence else ""
        )


@dataclass(frozen=True, slots=True)
class Adoption:
    """Result of ``adopt``: ``published`` intents at ``catalog_version``; those of the zones in ``dropped`` say
    that the zone is no more, for the catalog does not have it."""

    epoch: int
    catalog_version: int
    published: int
    dropped: tuple[str, ...]


@dataclass(eq=False)
class StoreGuard:
    """``publish`` sends every unsent intent to the metastore. ``mirror`` is one of the whole keyspace.
    ``held_zone``: the highest id of which nodes report that they hold something."""

    marks: AsyncMarks
    metastore: Watched
    mirror: KeyspaceMirror
    keyspace: Keyspace
    publish: Callable[[], Awaitable[int]]
    background: Background = field(default_factory=lambda: Background(restarts=False))
    held_zone: Callable[[], ZoneId] = lambda: NO_ZONE

    def __post_init__(self) -> None:
        self._newest = NewestIntent(self.mirror, self.keyspace)
        self._state: StoreState | None = None
        self._one_at_a_time = asyncio.Lock()
        self._wake = asyncio.Event()
        self._unmarked = 0
        self._unreadable = UnreadableLog()
        self.mirror.listen(self._on_change)

    @property
    def state(self) -> StoreState | None:
        """Return the state; None until both stores have answered once."""
        return self._state

    @property
    def is_agreed(self) -> bool:
        """Check that both stores have answered and belong together: intents may be published."""
        return self._state is not None and self._state.is_agreed

    def require_writable(self) -> None:
        """Raises StoreError with what stops statements now."""
        if self._state is None:
            message = "etcd has not answered since this server started"
            raise StoreError(ErrorKind.METASTORE_UNAVAILABLE, message)
        if self._state.unreadable is not None:
            message = f"nothing is written, for {self._state.unreadable.cause}"
            raise StoreError(ErrorKind.RECORD_NOT_READABLE, message)
        if self._state.divergence is not None:
            message = (
                f"nothing is written, for {self._state.divergence.reason}. Restore the backup that matches, or "
                "go on with what is there: `zonectl metastore adopt`"
            )
            raise StoreError(ErrorKind.METASTORE_DIVERGED, message)
        if self._state.full:
            message = (
                f"etcd has no space left ({self._state.full}): compact and defragment it, then disarm the "
                "alarm (`etcdctl alarm disarm`)"
            )
            raise StoreError(ErrorKind.METASTORE_FULL, message)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self.check()
            except (MetastoreError, StoreError) as error:
                log.info("the stores were not compared", error=str(error))
            except Exception as error:
                self.background.defect("the stores' comparison", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await self._wake.wait()
            self._wake.clear()

    async def check(self) -> StoreState:
        """Compares the stores now. Raises StoreError and MetastoreError when one does not answer."""
        async with self._one_at_a_time:
            return await self._check()

    async def adopt(self, shown: ShownState) -> Adoption | None:
        """Takes what both stores hold for the truth from now on; None when they agree already.

        The catalog's database goes first and the ``epoch`` key last: whatever is interrupted in between leaves
        two stores that disagree, and is done again by the next call. Raises RefusedError when the stores are
        not as they were ``shown`` to the requester, StoreError, MetastoreError.
        """
        async with self._one_at_a_time:
            state = await self._check()
            if state.unreadable is not None:
                raise state.unreadable.error
            if state.shown != shown:
                raise RefusedError(ErrorKind.SHOWN_STATE_CHANGED, _changed(shown, state))
            if state.divergence is None:
                return None
            log.warning("metastore is adopted", reason=state.divergence.reason)
            items = (await self.metastore.range(self.keyspace.intents)).items
            named = [item for item in items if self.keyspace.parse_intent(item.key) is not None]
            intents = [readable(item, ZoneIntent.decode) for item in named]
            known = await self.marks.truth(None)
            epoch_key = await self.metastore.get(self.keyspace.epoch)
            before = readable(epoch_key, EpochRecord.decode) or EpochRecord()
            lost = before.lost_life
            # Above all that anybody has seen: an epoch that was lost, too, never comes again.
            past = (before.epoch, known.mark.epoch if known.mark else FIRST_EPOCH, lost.epoch if lost else 0)
            epoch = max(past) + 1
            mark = MetastoreMark(epoch, 0, "", state.cluster_id)
            adopted = await self.marks.adopt(intents, mark, self.held_zone())
            while await self.publish():
                pass
            await self._open_epoch(epoch)
            await self.mirror.wait_until(lambda: self._seen_epoch() >= epoch, MIRROR_S)
            after = await self._check()
            if after.divergence is not None:
                raise StoreError(ErrorKind.METASTORE_DIVERGED, f"adopted, but {after.divergence.reason}")
            dropped = tuple(entry.zone.name for entry in adopted.dropped)
            version = adopted.snapshot.version
            log.warning("metastore adopted", epoch=epoch, catalog_version=version, dropped=dropped)
            return Adoption(epoch, version, len(adopted.entries), dropped)

    async def _check(self) -> StoreState:
        try:
            return await self._checked()
        except RecordNotReadableError as error:
            unreadable = Unreadable(error.key, error.reason)
            self._unreadable.waits("statements", unreadable)
            self._state = replace(self._state or StoreState(), unreadable=unreadable)
            return self._state

    async def _checked(self) -> StoreState:
        """Raises RecordNotReadableError for ``epoch``, before anything is written."""
        truth, store, condition, divergence = await self._compare()
        if divergence is not None:
            # Somebody else may have adopted the store between the two readings.
            truth, store, condition, divergence = await self._compare()
        epoch = store.only(0)
        record = readable(epoch, EpochRecord.decode) or EpochRecord()
        self._unreadable.goes_on("statements")
        state = StoreState(
            record.epoch,
            truth.version,
            store.revision,
            condition.cluster_id,
            divergence,
            condition.full,
            level=record.level,
        )
        self._report(state)
        self._state = state
        if divergence is not None:
            await self._halt(epoch, divergence)
        elif not state.full:
            await self._agree(truth, store, condition.cluster_id)
        return state

    async def _compare(self) -> tuple[CatalogTruth, TxnResult, Condition, Divergence | None]:
        newest = self._newest.intent
        truth = await self.marks.truth(newest)
        condition = await self.metastore.condition()
        keys = self.keyspace
        names = [keys.epoch, keys.mark]
        if newest is not None:
            names.append(keys.intent(newest.zone.zone_id))
        if truth.sent is not None:
            names.append(keys.intent(truth.sent.zone_id))
        store = await self.metastore.commit(Txn((), tuple(map(Get, names))))
        epoch, mark = store.only(0), store.only(1)
        if newest is not None and read(store.only(2), ZoneIntent.decode) != newest:
            # The mirror was behind, or the intent has moved on: the next look will tell.
            newest = None
        record = readable(epoch, EpochRecord.decode)
        found_truth = MetastoreTruth(
            record.epoch if record is not None else None,
            mark.mod_revision if mark else 0,
            mark.value.decode(errors="replace") if mark else "",
            condition.cluster_id,
            _sent_version(truth, store.only(len(names) - 1)),
            record.lost_life if record is not None else None,
        )
        return truth, store, condition, find_divergence(truth, found_truth, newest)

    async def _halt(self, epoch: KeyValue | None, divergence: Divergence) -> None:
        record = readable(epoch, EpochRecord.decode) or EpochRecord()
        if record.halted != divergence.reason:
            await self._write_epoch(epoch, replace(record, halted=divergence.reason))

    async def _agree(self, truth: CatalogTruth, store: TxnResult, cluster_id: str) -> None:
        """Opens the store when it was halted, gives it the catalog's level, and marks it when it has changed
        since it was last marked."""
        epoch, mark = store.only(0), store.only(1)
        record = readable(epoch, EpochRecord.decode) or EpochRecord()
        if epoch is None or record.halted or record.level < truth.level:
            opened = replace(record, halted="", level=max(record.level, truth.level))
            if await self._write_epoch(epoch, opened) and self._state is not None:
                self._state = replace(self._state, level=opened.level)
        self._unmarked += 1
        changed = mark is None or store.revision > mark.mod_revision
        if truth.mark is None or (changed and self._unmarked >= MARK_CHECKS):
            self._unmarked = 0
            nonce = uuid.uuid4().hex
            guard = as_read(self.keyspace.mark, mark)
            written = await self.metastore.commit(Txn((guard,), (Put(self.keyspace.mark, nonce.encode()),)))
            if written.succeeded:
                await self.marks.record_mark(MetastoreMark(record.epoch, written.revision, nonce, cluster_id))

    async def _open_epoch(self, epoch: int) -> None:

        def opened(item: KeyValue | None) -> bytes | None:
            record = readable(item, EpochRecord.decode) or EpochRecord()
            is_open = record.epoch >= epoch and not record.halted
            return None if is_open else replace(record, epoch=epoch, halted="", lost=None).encode()

        await update_key(self.metastore, self.keyspace.epoch, opened)

    def _seen_epoch(self) -> int:
        record = read(self.mirror.get(self.keyspace.epoch), EpochRecord.decode)
        return record.epoch if isinstance(record, EpochRecord) else FIRST_EPOCH

    async def _write_epoch(self, item: KeyValue | None, record: EpochRecord) -> bool:
        guard = as_read(self.keyspace.epoch, item)
        put = Put(self.keyspace.epoch, record.encode())
        return (await self.metastore.commit(Txn((guard,), (put,)))).succeeded

    def _report(self, state: StoreState) -> None:
        before = self._state or StoreState()
        if state.divergence is not None and state.divergence != before.divergence:
            reason, kind = state.divergence.reason, state.divergence.kind.value
            log.error("catalog and metastore do not belong together", kind=kind, reason=reason)
        elif state.divergence is None and before.divergence is not None:
            log.warning("catalog and metastore belong together again", epoch=state.epoch)
        if bool(state.full) != bool(before.full):
            report = log.error if state.full else log.warning
            report("metastore is full" if state.full else "metastore has space again", alarm=state.full)

    def _on_change(self, _changed: frozenset[str]) -> None:
        if self._newest.went_back:
            self._wake.set()


class NewestIntent:
    """The intent of the highest version in a mirror, kept as it changes."""

    def __init__(self, mirror: KeyspaceMirror, keyspace: Keyspace) -> None:
        self._mirror = mirror
        self._keyspace = keyspace
        self._versions: dict[str, int] = {}
        self._revision = 0
        self.went_back = False
        """The mirror's last change led to an earlier revision."""
        mirror.listen(self._on_change)

    @property
    def intent(self) -> ZoneIntent | None:
        """Return the intent; None when there is none, or the mirror is not loaded."""
        if not self._versions:
            return None
        key = max(self._versions, key=self._versions.__getitem__)
        intent = read(self._mirror.get(key), ZoneIntent.decode)
        return intent if isinstance(intent, ZoneIntent) else None

    def _on_change(self, changed: frozenset[str]) -> None:
        self.went_back = self._mirror.revision < self._revision
        self._revision = self._mirror.revision
        for key in changed:
            if self._keyspace.parse_intent(key) is None:
                continue
            intent = read(self._mirror.get(key), ZoneIntent.decode)
            if isinstance(intent, ZoneIntent):
                self._versions[key] = intent.version
            else:
                self._versions.pop(key, None)


def _sent_version(truth: CatalogTruth, item: KeyValue | None) -> int:
    """The version of the intent that was sent last, as the metastore has it; 0: it is not there. One that
    cannot be read is there, so it tells of no store that went back: its zone waits, and nobody else."""
    if truth.sent is None:
        return 0
    intent = read(item, ZoneIntent.decode)
    if isinstance(intent, Unreadable):
        return truth.sent.version
    return intent.version if intent is not None else 0


def _changed(shown: ShownState, now: StoreState) -> str:
    seen = f"epoch {shown.epoch}, {shown.reason or 'both agree'}"
    current = f"epoch {now.epoch}, {now.shown.reason or 'both agree'}"
    return f"the stores were shown as: {seen}; they are now: {current}"


class HeldZones:
    """``mirror`` has the keys of nodes. A node that is away keeps what it has: what it reported counts on."""

    def __init__(self, mirror: KeyspaceMirror, keyspace: Keyspace) -> None:
        self._mirror = mirror
        self._nodes = keyspace.nodes
        self.highest = NO_ZONE
        """The highest id that any node has reported to hold something of."""
        mirror.listen(self._on_change)

    def _on_change(self, changed: frozenset[str]) -> None:
        for key in changed:
            if key.startswith(self._nodes):
                record = read(self._mirror.get(key), NodeRecord.decode)
                if isinstance(record, NodeRecord):
                    self.highest = max(self.highest, ZoneId(record.highest_zone))
