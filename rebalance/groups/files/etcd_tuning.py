"""Settings that a member process runs with: small and cheap, because a node holds up to a hundred of them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rebalance.core.causes.cause import Cause
from rebalance.hosting.etcd_binary import EtcdBinary
from rebalance.hosting.tls import TlsFiles, tls_flags
from rebalance.ports.groups import MemberEndpoints
from rebalance.ports.metric_rows import NO_MEASURES, Measures

LOG_BYTES_MAX = 1 << 20
STRICT_STEPS = False
"""The default of ``EtcdTuning.strict_steps`` and of ``ZONEKEEPER_NODE_STRICT_STEPS``."""


@dataclass(frozen=True, slots=True)
class EtcdTuning:
    """Heartbeats are rarer than etcd's default of 100 ms, to leave room on a machine with many members; a lost
    leader is replaced later for it, within one to two election times. ``snapshot_count`` bounds the log that is
    kept in memory. ``catch_up_timeout_s`` ends an attempt of a change; the next one continues from the list.
    """

    heartbeat_ms: int = 200
    election_ms: int = 2_000
    snapshot_count: int = 2_000
    quota_bytes: int = 1 << 30
    compaction_revisions: int = 10_000
    stop_grace_s: float = 3.0
    catch_up_timeout_s: float = 15.0
    announce_s: float = 0.15
    """Between publishing a member as leaving and removing it: clients turn away in this time."""
    starts_at_once: int = 4
    strict_steps: bool = STRICT_STEPS
    """Members check membership steps themselves (``--strict-reconfig-check``). False: the node beside the
    leader does it before each step (``rebalance/core/moves/step_checks.py``), and nothing waits for five
    seconds. A member keeps its flag until it starts again."""
    etcd: EtcdBinary | None = None
    """Binary that members run; None: the one that ``find_etcd`` returns."""
    tls: TlsFiles | None = None
    """Members of groups speak TLS with each other and with clients. Not to be changed for members that exist:
    their addresses are in their groups' membership."""
    measures: Measures = NO_MEASURES
    """Measures of the node, which count starts of its members."""


@dataclass(frozen=True, slots=True)
class InitialCluster:
    """Group that etcd founds or joins where its data directory is empty. ``peers`` (node -> peer URL) must name
    the member itself; ``state``: new or existing."""

    peers: Mapping[str, str]
    token: str
    state: str


def member_command(
    binary: str,
    name: str,
    data: Path,
    endpoints: MemberEndpoints,
    cluster: InitialCluster,
    tuning: EtcdTuning,
    more: Mapping[str, int],
    *,
    alone: bool = False,
) -> Sequence[str]:
    """The command line of one member. ``more``: further flags. ``alone``: the other members are taken out of
    the list that is on disk."""
    peers = ",".join(f"{node}={peer_url}" for node, peer_url in sorted(cluster.peers.items()))
    flags = {
        "name": name,
        "data-dir": data,
        "listen-peer-urls": endpoints.peer_url,
        "initial-advertise-peer-urls": endpoints.peer_url,
        "listen-client-urls": endpoints.client_url,
        "advertise-client-urls": endpoints.client_url,
        "initial-cluster": peers,
        "initial-cluster-token": cluster.token,
        "initial-cluster-state": cluster.state,
        "heartbeat-interval": tuning.heartbeat_ms,
        "election-timeout": tuning.election_ms,
        "pre-vote": "true",
        "snapshot-count": tuning.snapshot_count,
        "max-snapshots": 2,
        "max-wals": 2,
        "quota-backend-bytes": tuning.quota_bytes,
        "auto-compaction-mode": "revision",
        "auto-compaction-retention": tuning.compaction_revisions,
        "logger": "zap",
        "log-level": "warn",
        "log-outputs": "stderr",
        "strict-reconfig-check": "true" if tuning.strict_steps else "false",
        **more,
        **({"force-new-cluster": "true"} if alone else {}),
    }
    tls = tls_flags(tuning.tls) if tuning.tls else {}
    return [binary, *(f"--{flag}={value}" for flag, value in {**flags, **tls}.items())]


MIRROR_FLAGS: Mapping[str, int] = {
    # A lease that ends deletes all its keys in one revision, however many they are.
    "max-txn-ops": 1 << 20,
    "max-request-bytes": 64 << 20,
}

MEMBER_ENVIRONMENT = {"GOMAXPROCS": "2"}
"""A hundred small members must not each take a thread per core."""


def bound_log(path: Path) -> int:
    """Empty a log that has grown past its limit; its writer appends, so it goes on at the start. Return the
    size of what stays."""
    try:
        if (size := path.stat().st_size) <= LOG_BYTES_MAX:
            return size
        os.truncate(path, 0)
    except FileNotFoundError:
        pass
    return 0


def last_log_line(path: Path) -> str:
    """Text of the log's last line, for a reason that a person reads; empty when there is none."""
    try:
        tail = path.read_bytes()[-8_000:].decode(errors="replace").strip()
    except OSError:
        return ""
    return _told(tail.splitlines()[-1] if tail else "")


DAMAGE = (
    *("crc mismatch", "cannot be repaired", "wal: ", "walpb: ", "proto: ", "snap: ", "unexpected eof"),
    *("was the raft log corrupted", "database snapshot file", "invalid database", "checksum error"),
    *("freelist", "freepages", "already freed", "file size too small", "out of range"),
    "unexpected fault address",
)
"""Words, in lower case, that etcd, its log and its store end with where data is not what they have written."""
LAST_WORDS = (
    '"level":"fatal"',
    '"level":"panic"',
    "panic: ",
    "fatal error: ",
    "unexpected fault address",
    " C | ",
)
"""Lines with which etcd ends; what others say of connections may read alike."""


NO_SPACE = ("no space left on device", "disk quota exceeded")
"""Words with which the system refuses to write; etcd puts words of damage beside them, and nothing is
damaged."""


def cause_in(path: Path, begin: int) -> str:
    """Cause of etcd's end, by the end of its log from byte ``begin`` on: ``DISK_FULL`` or ``COPY_DAMAGED`` with
    its words; empty: another cause."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(begin, path.stat().st_size - LOG_BYTES_MAX))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    words = [_told(line) for line in text.splitlines() if any(mark in line for mark in LAST_WORDS)]
    for cause, marks in ((Cause.DISK_FULL, NO_SPACE), (Cause.COPY_DAMAGED, DAMAGE)):
        for line in words:
            if any(mark in line.lower() for mark in marks):
                return cause.text(line)
    return ""


def _told(line: str) -> str:
    try:
        entry = json.loads(line)
        texts = [entry["msg"], entry.get("error", "")]
    except (ValueError, KeyError, TypeError):
        return line[-300:]
    return ": ".join(text for text in texts if text)[:300]
