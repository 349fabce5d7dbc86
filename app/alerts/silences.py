"""Silences of alerts, for servers: which hold, and who may begin one of what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from app.alerts.alert_rows import BY_NAME
from app.core.alerts import SILENCES_MAX, Silence
from app.process.logs import utc_now_ms
from catalog.core.errors import ErrorKind, RefusedError
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read, readable
from rebalance.core.keyspace.txn import Delete, Put, Txn, as_read
from rebalance.metastore.guarded_update import commit_decided
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.ports.metastore import Metastore

SEEN_S = 2.0
"""Seconds that a change of a silence waits at most for this server to see it."""
LABEL_NAMES = tuple(sorted({row.label for row in BY_NAME.values() if row.label}))


class Silences:
    """The ``silences/`` keys. Changes raise MetastoreError, and RecordNotReadableError where a key cannot be
    read."""

    def __init__(self, metastore: Metastore, mirror: KeyspaceMirror, keyspace: Keyspace) -> None:
        self._metastore = metastore
        self._mirror = mirror
        self._keyspace = keyspace

    def now(self) -> tuple[Silence, ...]:
        """Silences that hold as far as this server has heard, the one that ends first first. A record that
        cannot be read silences nothing."""
        now_ms = utc_now_ms()
        items = (read(item, Silence.decode) for item in self._mirror.below(self._keyspace.silences))
        silences = (item for item in items if item is not None and not isinstance(item, Unreadable))
        holding = (silence for silence in silences if silence.holds(now_ms))
        return tuple(sorted(holding, key=lambda silence: (silence.until_ms, silence.subject)))

    async def begin(self, silence: Silence) -> Silence:
        """Begin a silence, in place of an earlier one of the same alerts, whose begin it keeps. Raises
        RefusedError if there are too many already."""
        key = self._keyspace.silence(silence.silence_id)
        lasts_s = max(1, (silence.until_ms - silence.since_ms) // 1_000)
        lease = 0

        async def decide() -> tuple[Silence, Txn | None]:
            nonlocal lease
            items = (await self._metastore.range(self._keyspace.silences)).items
            item = next((item for item in items if item.key == key), None)
            earlier = readable(item, Silence.decode)
            if earlier is None and len(items) >= SILENCES_MAX:
                message = f"there are {SILENCES_MAX} silences already: end one of them"
                raise RefusedError(ErrorKind.INVALID_REQUEST, message)
            begun = silence
            if earlier is not None and earlier.holds(silence.since_ms):
                begun = replace(silence, since_ms=earlier.since_ms)
            # Not before: a silence that is refused leaves none behind.
            lease = lease or await self._metastore.grant_lease(lasts_s)
            return begun, Txn((as_read(key, item),), (Put(key, begun.encode(), lease),))

        begun, revision = await commit_decided(self._metastore, decide)
        await self._seen(revision)
        return begun

    async def end(self, silence_id: str, is_seen: Callable[[Silence], bool]) -> Silence | None:
        """The one that was ended; None: none of this id held, or none that is seen."""
        key = self._keyspace.silence(silence_id)

        async def decide() -> tuple[Silence | None, Txn | None]:
            item = await self._metastore.get(key)
            silence = readable(item, Silence.decode)
            if silence is None or not silence.holds(utc_now_ms()) or not is_seen(silence):
                return None, None
            return silence, Txn((as_read(key, item),), (Delete(key),))

        ended, revision = await commit_decided(self._metastore, decide)
        await self._seen(revision)
        return ended

    async def _seen(self, revision: int) -> None:
        await self._mirror.wait_until(lambda: self._mirror.revision >= revision, SEEN_S)


def check_silenced(name: str | None, labels: Mapping[str, str]) -> None:
    """Raises RefusedError (INVALID_REQUEST) for what no alert is called, or has."""
    if name is None and not labels:
        raise RefusedError(
            ErrorKind.INVALID_REQUEST, "name an alert, a label, or both: all alerts cannot be silenced at once"
        )
    if name is not None and name not in BY_NAME:
        message = f"there is no alert {name[:80]}; there is {', '.join(sorted(BY_NAME))}"
        raise RefusedError(ErrorKind.INVALID_REQUEST, message)
    known = LABEL_NAMES if name is None else (BY_NAME[name].label,)
    for label in labels:
        if label not in known:
            has = f"the label {known[0]}" if known[0] else "no label"
            what = f"alerts have the labels {', '.join(known)}" if name is None else f"{name} has {has}"
            raise RefusedError(ErrorKind.INVALID_REQUEST, f"{what}, not {label[:80]}")
