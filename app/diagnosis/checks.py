"""Checks: what was seen, the threshold, the verdict, and what to do. Pure: probes bring the facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any

from rebalance.core.causes.cause_table import row_of
from rebalance.core.recovery.etcd_versions import is_broken, parse_version

GIB = 1 << 30
DISK_FREE_WARN, DISK_FREE_FAIL = 5 * GIB, GIB
INODES_WARN, INODES_FAIL = 0.10, 0.02
"""Share of all inodes that is free."""
FSYNC_WARN_S, FSYNC_FAIL_S = 0.010, 0.100
"""etcd wants 10 ms; at 100 ms, its heartbeat interval, leaders are lost."""
SKEW_WARN_S, SKEW_FAIL_S = 0.5, 5.0
DATE_AGE = timedelta(seconds=2)
"""A Date header has whole seconds, and servers write it once a second."""
CERTIFICATE_WARN = timedelta(days=30)
QUOTA_WARN, QUOTA_FAIL = 0.75, 0.90
"""Share of etcd's quota that is allocated."""
FILES_WARN, FILES_FAIL = 4_096, 1_024
FILES_USED_WARN, FILES_USED_FAIL = 0.80, 0.95
"""Share of a process's limit that is open."""
PROCESSES_WARN, PROCESSES_FAIL = 4_096, 1_024
PYTHON_LEAST = (3, 11)
OUT_OF_ORDER = "warn for what is a ticket, fail for what is a page"
"""Threshold of the checks made of what the server's judge reports (``readiness_judge``)."""


class CheckVerdict(IntEnum):
    """The worst of all checks is the exit code of ``zonectl doctor``."""

    OK = 0
    WARN = 1
    FAIL = 2


@dataclass(frozen=True, slots=True)
class Check:
    """``action`` says what to do; empty where nothing is to be done. ``threshold``: when it warns and fails."""

    name: str
    value: str
    threshold: str
    verdict: CheckVerdict
    action: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": self.verdict.name.lower()}


def worst(checks: Iterable[Check]) -> CheckVerdict:
    """OK without any check."""
    return max((check.verdict for check in checks), default=CheckVerdict.OK)


def report(checks: Sequence[Check]) -> dict[str, Any]:
    """Return the checks and the worst verdict among them as JSON."""
    return {"verdict": worst(checks).name.lower(), "checks": [check.as_json() for check in checks]}


def check_of(name: str, value: str, threshold: str, verdict: CheckVerdict, action: str) -> Check:
    """``action`` only where the verdict asks for one."""
    return Check(name, value, threshold, verdict, "" if verdict is CheckVerdict.OK else action)


def falling(number: float, warn: float, fail: float) -> CheckVerdict:
    """Verdict on a number that must not fall: WARN below ``warn``, FAIL below ``fail``."""
    return CheckVerdict.FAIL if number < fail else CheckVerdict.WARN if number < warn else CheckVerdict.OK


def rising(number: float, warn: float, fail: float) -> CheckVerdict:
    """Verdict on a number that must not rise: WARN from ``warn`` on, FAIL from ``fail`` on."""
    return CheckVerdict.FAIL if number >= fail else CheckVerdict.WARN if number >= warn else CheckVerdict.OK


def size(count: float) -> str:
    """``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def disk_space(path: str, free: int, total: int) -> Check:
    """Bytes that a user other than root may still write."""
    return check_of(
        f"free space of {path}",
        f"{size(free)} of {size(total)}",
        f"warn below {size(DISK_FREE_WARN)}, fail below {size(DISK_FREE_FAIL)}",
        falling(free, DISK_FREE_WARN, DISK_FREE_FAIL),
        "Remove files that are not Zonekeeper's, enlarge the file system, or drain the node "
        "(`zonectl node drain`). A store on a full disk takes no more writes.",
    )


def inodes(path: str, free: int, total: int) -> Check:
    """``total`` 0: the file system does not count them."""
    share = free / total if total else 1.0
    return check_of(
        f"free inodes of {path}",
        f"{free:,} of {total:,}" if total else "not counted by this file system",
        f"warn below {INODES_WARN:.0%}, fail below {INODES_FAIL:.0%}",
        falling(share, INODES_WARN, INODES_FAIL),
        "Remove small files from this file system.",
    )


def fsync_time(path: str, seconds: Sequence[float]) -> Check:
    """The median of ``seconds``, one number for each sync. One slow sync on a busy disk proves nothing."""
    median = sorted(seconds)[len(seconds) // 2]
    return check_of(
        f"fsync time of {path}",
        f"{1000 * median:.1f} ms (median of {len(seconds)}; longest {1000 * max(seconds):.1f} ms)",
        f"warn from {1000 * FSYNC_WARN_S:.0f} ms, fail from {1000 * FSYNC_FAIL_S:.0f} ms",
        rising(median, FSYNC_WARN_S, FSYNC_FAIL_S),
        "Put the data directory on a faster or less busy disk. etcd loses its leader when it waits for disks.",
    )


def skew_s(theirs: datetime, asked: datetime, answered: datetime) -> float:
    """Seconds by which a clock that said ``theirs`` at a time from ``asked`` to ``answered`` is ahead of ours
    (negative: behind): the least difference that both facts allow, 0.0 if they allow that the clocks agree."""
    least = (theirs - answered).total_seconds()
    most = (theirs + DATE_AGE - asked).total_seconds()
    if least <= 0 <= most:
        return 0.0
    return least if least > 0 else most


def clock(whose: str, skew: float) -> Check:
    way = "ahead of" if skew > 0 else "behind"
    return check_of(
        f"clock of {whose}",
        f"{abs(skew):.1f} s {way} this machine's" if skew else "agrees with this machine's",
        f"warn from {SKEW_WARN_S} s, fail from {SKEW_FAIL_S:.0f} s",
        rising(abs(skew), SKEW_WARN_S, SKEW_FAIL_S),
        "Run a time service (chrony, systemd-timesyncd) on both machines.",
    )


def certificate(what: str, begins: datetime, ends: datetime, now: datetime, action: str) -> Check:
    """Times are aware. ``action``: how this one is renewed."""
    left = ends - now
    verdict = CheckVerdict.FAIL if left <= timedelta() or begins > now else CheckVerdict.OK
    if verdict is CheckVerdict.OK and left < CERTIFICATE_WARN:
        verdict = CheckVerdict.WARN
    if begins > now:
        value = f"not valid before {begins:%Y-%m-%d %H:%M} UTC"
    elif left <= timedelta():
        value = f"expired at {ends:%Y-%m-%d %H:%M} UTC"
    else:
        value = f"valid until {ends:%Y-%m-%d}, {left.days} days"
    threshold = f"warn below {CERTIFICATE_WARN.days} days, fail when it is not valid"
    return check_of(what, value, threshold, verdict, action)


def open_files(limits: Mapping[str, tuple[int, int | None]]) -> Check:
    """Check open files against their limits. ``limits``: by process its limit, and the number that is open
    (None: not known)."""

    def judged(limit: int, used: int | None) -> CheckVerdict:
        share = (used or 0) / max(limit, 1)
        return max(falling(limit, FILES_WARN, FILES_FAIL), rising(share, FILES_USED_WARN, FILES_USED_FAIL))

    shown = ", ".join(
        f"{who} {limit:,}" if used is None else f"{who} {used:,} of {limit:,}"
        for who, (limit, used) in limits.items()
    )
    return check_of(
        "open files",
        shown,
        f"limit: warn below {FILES_WARN:,}, fail below {FILES_FAIL:,}; "
        f"open: warn from {FILES_USED_WARN:.0%}, fail from {FILES_USED_FAIL:.0%}",
        max((judged(*each) for each in limits.values()), default=CheckVerdict.OK),
        f"Raise the limit before the start: `ulimit -n {16 * FILES_WARN}`, or LimitNOFILE= of the service.",
    )


def process_limit(limit: int | None) -> Check:
    """None: there is no limit."""
    return check_of(
        "processes of this user",
        "no limit" if limit is None else f"limit {limit:,}",
        f"limit: warn below {PROCESSES_WARN:,}, fail below {PROCESSES_FAIL:,}",
        CheckVerdict.OK if limit is None else falling(limit, PROCESSES_WARN, PROCESSES_FAIL),
        f"Raise the limit before the start: `ulimit -u {8 * PROCESSES_WARN}`, or TasksMax= of the service. "
        "Each member is a process.",
    )


def python(version: tuple[int, int, int]) -> Check:
    verdict = CheckVerdict.OK if version[:2] >= PYTHON_LEAST else CheckVerdict.FAIL
    least = ".".join(map(str, PYTHON_LEAST))
    return check_of(
        "python", ".".join(map(str, version)), f"fail below {least}", verdict, f"Install Python {least}."
    )


def java(version: str, why_not: str = "") -> Check:
    """``version`` empty: there is none that Spark runs on, for ``why_not``."""
    return check_of(
        "java",
        version or why_not,
        "warn without one that Spark runs on",
        CheckVerdict.OK if version else CheckVerdict.WARN,
        "Install Java or set JAVA_HOME. Without Spark, the server computes placements by itself.",
    )


def etcd_version(name: str, version: str) -> Check:
    try:
        is_good = not is_broken(parse_version(version))
    except ValueError:
        is_good = False
    return check_of(
        name,
        version or "not known",
        "warn for 3.5.0 to 3.5.2, which can corrupt a cluster of several members after a crash",
        CheckVerdict.OK if is_good else CheckVerdict.WARN,
        "Install another etcd (Debian: apt-get install etcd-server).",
    )


def server_version(theirs: str, ours: str) -> Check:
    return check_of(
        "version of the server",
        f"{theirs or 'not known'}, this zonectl {ours}",
        "warn when they differ",
        CheckVerdict.OK if theirs == ours else CheckVerdict.WARN,
        "Use the zonectl of the server's version, or restart the server with this one's.",
    )


def strays(upgrade: Mapping[str, Any]) -> Check:
    """``upgrade``: as the server answers it."""
    members = upgrade.get("strays", [])
    return check_of(
        "members of groups in store zones",
        "; ".join(members) or "0",
        "warn for any",
        CheckVerdict.WARN if members else CheckVerdict.OK,
        "A build before 0.2.0 founded them, and nobody reads them. They may also be of a time in which the "
        "zone's profiles were kept by etcd: look at their data first. Then drain the node, remove it with "
        "`zonectl node remove`, and start it anew on an empty directory.",
    )


def builds(upgrade: Mapping[str, Any]) -> Check:
    """``upgrade``: as the server answers it (``/api/v1/upgrade``)."""
    processes, refused, steps = upgrade["processes"], upgrade["refused"], upgrade["steps"]
    level = f"release level {upgrade['level_in_force']} in force"
    if refused:
        value, verdict = f"below the {level}: {', '.join(refused)}", CheckVerdict.FAIL
    elif steps:
        older = ", ".join(f"{step['process']} {step['version'] or 'of no known version'}" for step in steps)
        value, verdict = f"{level}; earlier than {upgrade['version']}: {older}", CheckVerdict.WARN
    elif upgrade["state"] != "FINALISED":
        waits = f" ({'; '.join(upgrade['hindrances'])})" if upgrade["hindrances"] else ""
        value, verdict = f"{level}, {upgrade['version']} is not finalised{waits}", CheckVerdict.WARN
    else:
        value, verdict = f"{len(processes)} of {upgrade['version']}, {level}", CheckVerdict.OK
    return check_of(
        "versions of processes",
        value,
        "warn while an upgrade is under way, fail for a process that may not run",
        verdict,
        "Go on with the upgrade: `zonectl upgrade plan`, then `zonectl upgrade finalise`.",
    )


def etcd_size(endpoint: str, allocated: float, in_use: float, quota: float) -> Check:
    """Bytes; ``quota`` 0: etcd's own default of 2 GiB."""
    most = quota or 2 * GIB
    share = allocated / most
    return check_of(
        f"size of etcd {endpoint}",
        f"{size(allocated)} of {size(most)} ({share:.0%}), {size(in_use)} in use",
        f"warn from {QUOTA_WARN:.0%} of the quota, fail from {QUOTA_FAIL:.0%}",
        rising(share, QUOTA_WARN, QUOTA_FAIL),
        "Compact and defragment it (`etcdctl defrag`), or raise --quota-backend-bytes. "
        "At its quota, etcd refuses all writes.",
    )


def etcd_alarms(alarms: Sequence[str]) -> Check:
    return check_of(
        "alarms of etcd",
        ", ".join(alarms) or "none",
        "fail for any",
        CheckVerdict.FAIL if alarms else CheckVerdict.OK,
        "NOSPACE: free space, defragment, then `etcdctl alarm disarm`. CORRUPT: replace that member.",
    )


def node_leases(expected: Iterable[str], left_s: Mapping[str, tuple[int, int]]) -> Check:
    """``left_s``: by registered node, seconds left of its lease and seconds granted. Nodes renew theirs every
    third of it, so that one with less than a third left has missed two."""
    names = sorted({*expected, *left_s})
    missing = [name for name in names if name not in left_s]
    late = [name for name, (left, granted) in left_s.items() if left * 3 < granted]
    leases = {name: "{} of {} s".format(*left_s[name]) if name in left_s else "none" for name in names}
    shown = ", ".join(f"{name} {lease}" for name, lease in leases.items())
    return check_of(
        "leases of nodes",
        shown or "no node is registered",
        "warn below a third of the lease, fail without one",
        CheckVerdict.FAIL if missing or not names else CheckVerdict.WARN if late else CheckVerdict.OK,
        f"See the logs of {', '.join(missing or late) or 'the nodes'}: a node without a lease counts as down.",
    )


def out_of_order(part: Mapping[str, Any]) -> Check:
    """``part``: of ``degraded`` of ``/readyz``."""
    since = f" (since {part['since']})" if part.get("since") else ""
    row = row_of(part["cause"])
    word, _, detail = part["cause"].partition(": ")
    return Check(
        " ".join([f"{part['part']}: {word}", *(part.get("labels") or {}).values()]),
        f"{detail}{since}",
        OUT_OF_ORDER,
        CheckVerdict.FAIL if part.get("severity") == "page" else CheckVerdict.WARN,
        row.action if row is not None else "See `zonectl status`.",
    )


def catalog_schema(where: str, theirs: str, known: Sequence[str]) -> Check:
    """``known``: the schemas of this build, the newest first. ``theirs`` empty: the database has none."""
    newest = known[0]
    is_behind = theirs <= newest
    action = "Run `zonectl migrate`." if is_behind else "Use the newer build that wrote it."
    return check_of(
        "schema of the catalog",
        f"{theirs or 'none'} in {where}",
        f"fail before {newest}, warn when it is newer",
        CheckVerdict.OK if theirs == newest else CheckVerdict.FAIL if is_behind else CheckVerdict.WARN,
        action,
    )


def not_seen(name: str, threshold: str, reason: str, action: str) -> Check:
    """A check whose fact could not be had: that is a failure of its own."""
    return Check(name, reason, threshold, CheckVerdict.FAIL, action)
