"""Processes that run in an installation, their builds, and what stands in the way of finalising an upgrade."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from catalog.core.codec import Codec, Record
from catalog.core.level import NO_LEVEL
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.readable import Unreadable, read
from rebalance.core.keyspace.records import (
    MemberRecord,
    MemberState,
    NodeRecord,
    ProcessRecord,
    ProcessRole,
    is_store,
)
from rebalance.core.keyspace.txn import KeyValue

OLDER_S = 600
"""An older build that was seen within so many seconds may come back by itself."""
ORDER = (ProcessRole.SERVER, ProcessRole.CONTROLLER, ProcessRole.NODE)
"""Order in which an upgrade replaces processes: servers bring the catalog's schema, which older ones can
write."""


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """``version``: empty where it registers none, ``commit`` likewise. ``level``: of its build."""

    name: str
    role: str
    version: str
    commit: str
    level: int

    def __str__(self) -> str:
        whose = self.name if self.name.startswith(self.role) else f"{self.role} {self.name}"
        return f"{whose} ({self.version or 'version not known'}, release level {self.level})"


@dataclass(frozen=True, slots=True)
class OlderBuild(Record):
    """The last process of a lower release level that a server has seen, at ``seen_ms``; the key lasts
    ``OLDER_S``."""

    process: str
    seen_ms: int


OlderBuild.codec = Codec(OlderBuild)


def running(
    nodes: Iterable[KeyValue], processes: Iterable[KeyValue], keyspace: Keyspace
) -> tuple[RunningProcess, ...]:
    """Processes of the keys below ``nodes/`` and ``processes/``, by role in ``ORDER``, then by name. Of a node
    the lower of both its levels counts: one of its keys may still be that of the build before. A process whose
    record cannot be read is of no level."""
    known = {item.key.removeprefix(keyspace.processes): _process(item, keyspace) for item in processes}
    for item in nodes:
        name, record = item.key.removeprefix(keyspace.nodes), read(item, NodeRecord.decode)
        level = NO_LEVEL if isinstance(record, Unreadable) else record.build_level
        process = known.get(name)
        if process is None or level < process.level:
            known[name] = RunningProcess(name, ProcessRole.NODE.value, "", "", level)
    return tuple(sorted(known.values(), key=lambda process: (_rank(process.role), process.name)))


def _process(item: KeyValue, keyspace: Keyspace) -> RunningProcess:
    name, record = item.key.removeprefix(keyspace.processes), read(item, ProcessRecord.decode)
    if isinstance(record, Unreadable):
        return RunningProcess(name, "process", "", "", NO_LEVEL)
    return RunningProcess(name, record.role, record.build, record.commit, record.level)


def _rank(role: str) -> int:
    return next((rank for rank, known in enumerate(ORDER) if known.value == role), len(ORDER))


def below(processes: Iterable[RunningProcess], level: int) -> tuple[RunningProcess, ...]:
    """Processes whose builds are of a lower level than ``level``."""
    return tuple(process for process in processes if process.level < level)


def hindrances(
    processes: Iterable[RunningProcess], older: OlderBuild | Unreadable | None, level: int
) -> Iterator[str]:
    """Yield the reasons why ``level`` cannot come into force, in words that name what is to be replaced; none:
    it can."""
    lower = below(processes, level)
    for process in lower:
        yield f"{process} cannot read what is written at level {level}"
    if isinstance(older, Unreadable):
        yield older.cause
    elif older is not None and not lower:
        minutes = OLDER_S // 60
        yield f"{older.process} was seen less than {minutes} minutes ago, and may come back"


def stray_members(members: Iterable[KeyValue], keyspace: Keyspace) -> Counter[str]:
    """Members of groups by node, of the keys of a zone that store servers keep. A build before 0.2.0 founds
    them, as it knows of no other engine; nobody is sent to them."""
    counts = Counter[str]()
    for item in members:
        parsed, record = keyspace.parse_member(item.key), read(item, MemberRecord.decode)
        if parsed is None or record is None or isinstance(record, Unreadable):
            continue
        if record.state is not MemberState.NONE:
            counts[parsed[1]] += 1
    return counts


def version_key(version: str) -> tuple[int, ...]:
    """Versions in their order; one that is not known is before all others."""
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def newest_version(processes: Iterable[RunningProcess]) -> str:
    return max((process.version for process in processes), key=version_key, default="")


def waiting(processes: Iterable[RunningProcess]) -> tuple[RunningProcess, ...]:
    """Processes of an earlier version or level than another one, in the order in which to replace them. Store
    servers are left out: they are replaced with their nodes."""
    known = tuple(processes)
    newest, level = newest_version(known), max((process.level for process in known), default=NO_LEVEL)
    return tuple(
        process
        for process in known
        if not is_store(process.name)
        and (version_key(process.version) < version_key(newest) or process.level < level)
    )
