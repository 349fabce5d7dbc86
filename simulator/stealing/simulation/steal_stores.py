"""Stores on a simulated server's disk: read-write ones, and read-only ones in versioned directories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from simulator.stealing.core.steal_cluster import RO_FORMAT
from simulator.stealing.core.vector_clock import Versioned, put_all, put_version

Rows = tuple[tuple[str, tuple[Versioned, ...]], ...]


class ReadWriteStore:
    """Versions of each key, by partition: a unit copies and deletes whole partitions."""

    def __init__(self) -> None:
        self._partitions: defaultdict[int, dict[str, tuple[Versioned, ...]]] = defaultdict(dict)

    def get(self, partition: int, key: str) -> tuple[Versioned, ...]:
        return self._partitions[partition].get(key, ())

    def put(self, partition: int, key: str, version: Versioned) -> None:
        """Raises ObsoleteVersionError."""
        rows = self._partitions[partition]
        rows[key] = put_version(rows.get(key, ()), version)

    def put_all(self, partition: int, key: str, versions: Iterable[Versioned]) -> None:
        """Obsolete ones are ignored (VOL-072)."""
        rows = self._partitions[partition]
        rows[key] = put_all(rows.get(key, ()), versions)

    def rows_after(self, partition: int, after: str, limit: int) -> Rows:
        """The next rows of a partition, by key."""
        rows = self._partitions[partition]
        return tuple((key, rows[key]) for key in sorted(key for key in rows if key > after)[:limit])

    def keys(self, partition: int) -> tuple[str, ...]:
        return tuple(sorted(self._partitions[partition]))

    def delete(self, partition: int) -> None:
        self._partitions.pop(partition, None)


class ReadOnlyStore:
    """One directory a version; the current one is served. A fetch fills the next one, which nobody sees until
    the swap."""

    def __init__(self, partitions: Mapping[int, Mapping[str, str]]) -> None:
        self.format = RO_FORMAT
        self.current = 0
        self._versions = {0: {number: dict(rows) for number, rows in partitions.items()}}

    @property
    def directories(self) -> tuple[int, ...]:
        return tuple(sorted(self._versions))

    def get(self, partition: int, key: str) -> str | None:
        return self._versions[self.current].get(partition, {}).get(key)

    def fetch(self, partition: int) -> Mapping[str, str]:
        return dict(self._versions[self.current].get(partition, {}))

    def keys(self, partition: int) -> tuple[str, ...]:
        return tuple(sorted(self._versions[self.current].get(partition, {})))

    def receive(self, partition: int, rows: Mapping[str, str]) -> None:
        self._next()[partition] = dict(rows)

    def swap(self) -> None:
        """The next directory is served from now on; where nothing was fetched it has the same files."""
        self._next()
        self.current += 1

    def swap_back(self) -> None:
        del self._versions[self.current]
        self.current -= 1

    def drop_fetched(self) -> None:
        self._versions.pop(self.current + 1, None)

    def keep_current(self) -> None:
        """There is no way back any more."""
        self._versions = {self.current: self._versions[self.current]}

    def delete(self, partition: int) -> None:
        self._versions[self.current].pop(partition, None)

    def _next(self) -> dict[int, dict[str, str]]:
        return self._versions.setdefault(self.current + 1, dict(self._versions[self.current]))
