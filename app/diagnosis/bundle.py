"""The debug zip: what describes an installation, without its secrets and within limits of time and size. Its
entries are read from files of this machine, and asked of servers and of etcd."""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import httpx
from aetcd import rpc

from app.configuration.local_server import SCRAPE_TOKEN_FILE, TARGETS_FILE
from app.configuration.settings import Settings
from app.diagnosis.checks import report
from app.diagnosis.examination import Target, examine, gather
from app.diagnosis.examined_installation import ExaminedInstallation
from app.diagnosis.machine_probes import java
from app.diagnosis.metastore_probes import MetastoreMember, first_answer
from app.diagnosis.scrubbing import HIDDEN, Scrubber, is_secret, secrets_in, without_literals
from app.diagnosis.server_probes import Ask, Query
from app.process.build import own_commit, own_version
from app.sql.views.system_views import SYSTEM_VIEWS
from parser.hidden_secrets import hide_secrets
from rebalance.core.keyspace.records import ProcessRole
from rebalance.hosting.heartbeat import age_of_this_process_s
from rebalance.hosting.private_files import replace_privately

LOG_BYTES_MAX = 2 << 20
LOGS_BYTES_MAX = 24 << 20
SECRET_BYTES_MAX = 64 << 10
PREFIX = "ZONEKEEPER_"
STATE_FILES = ("state.json", "run.json", "etcd.json")
SHOWN = frozenset(Settings.model_fields) - {"catalog_url", "alert_webhook_url"}
"""Settings whose values may be shown: the two may hold a secret, and what has another name anything."""


@dataclass(frozen=True, slots=True)
class BundleEntry:
    """One file of the zip, as text. ``is_cut``: it holds only a part."""

    name: str
    text: str
    is_cut: bool = False


def versions() -> Iterator[BundleEntry]:
    packages = {each.name: each.version for each in distributions()}
    body = {
        "zonekeeper": own_version(),
        "commit": own_commit(),
        "python": sys.version,
        "java": java().value,
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "packages": dict(sorted(packages.items())),
    }
    yield BundleEntry("versions.json", json.dumps(body, indent=2))


def settings(installation: ExaminedInstallation, environment: Mapping[str, str]) -> Iterator[BundleEntry]:
    """Settings of this process and of each process that runs, read from their environments, and the files of
    STATE_FILES in the data directory."""
    found = {"this process": environment, **dict(_environments(installation))}
    found = {name: _shown(each) for name, each in found.items()}
    yield BundleEntry("settings.json", json.dumps(found, indent=2))
    if installation.data_dir is None:
        return
    for name in STATE_FILES:
        path = installation.data_dir / name
        if path.is_file():
            yield BundleEntry(f"data-directory/{name}", path.read_text(errors="replace"))


def logs(installation: ExaminedInstallation) -> Iterator[BundleEntry]:
    """The ends of all, the newest first."""
    if installation.data_dir is None:
        return
    left = LOGS_BYTES_MAX
    folder = installation.data_dir / "logs"
    paths = [path for path in folder.glob("*.log*") if path.is_file() and not path.is_symlink()]
    for path in sorted(paths, key=lambda path: (-path.stat().st_mtime_ns, path.name)):
        if left <= 0:
            return
        most = min(left, LOG_BYTES_MAX)
        with path.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - most))
            raw = stream.read(most)
        left -= len(raw)
        # A line that begins before is left out: half a secret is not recognised.
        kept = raw if size <= most else raw.partition(b"\n")[2]
        yield BundleEntry(f"logs/{path.name}", kept.decode(errors="replace"), is_cut=size > most)


def known_secrets(installation: ExaminedInstallation, environment: Mapping[str, str]) -> set[str]:
    """Values of secrets: from the environments of this process and of the processes that run, and from files
    that hold nothing else. What cannot be read is left out."""
    found, files = secrets_in(environment), _secret_files(environment, Path())
    for process, each in _environments(installation):
        found |= secrets_in(each)
        files += _secret_files(each, Path(f"/proc/{installation.pids[process]}/cwd"))
    if installation.data_dir is not None:
        files += [installation.data_dir / name for name in ("admin.token", SCRAPE_TOKEN_FILE)]
    for path in files:
        try:
            text = path.read_bytes()[:SECRET_BYTES_MAX].decode(errors="replace").strip()
        except OSError:
            continue
        found |= {line.strip() for line in text.splitlines()} - {""}
    return found


def _secret_files(environment: Mapping[str, str], folder: Path) -> list[Path]:
    """Paths in variables that name the file of a secret; relative ones begin at ``folder``."""
    named = {name: value for name, value in environment.items() if name.endswith("_FILE") and value}
    return [folder / value for name, value in named.items() if is_secret(name.removesuffix("_FILE"))]


def _environments(installation: ExaminedInstallation) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the environment of each process that runs, with the name of the process; one that cannot be read is
    left out."""
    for name, pid in installation.pids.items():
        with suppress(OSError):
            raw = Path(f"/proc/{pid}/environ").read_bytes()
            entries = (entry.decode(errors="replace") for entry in raw.split(b"\0") if b"=" in entry)
            yield name, dict(entry.split("=", 1) for entry in entries)


def _shown(environment: Mapping[str, str]) -> dict[str, str]:
    """Ours, without the values of those that are no plain setting."""
    return {
        name: value if name.removeprefix(PREFIX).lower() in SHOWN else HIDDEN
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX)
    }


CALL_S = 8.0
ANSWERS: Mapping[str, str] = {
    "metrics/server.txt": "/metrics",
    "server/readiness.json": "/readyz",
    "server/nodes.json": "/api/v1/nodes",
    "server/zones.json": "/api/v1/zones",
    "server/operations.json": "/api/v1/operations",
    "server/limits.json": "/api/v1/rebalance/limits",
    "server/metastore.json": "/api/v1/metastore",
    "server/alerts.json": "/api/v1/alerts",
    "server/metrics-targets.json": "/api/v1/metrics/targets",
}
STATEMENTS = frozenset({"STATEMENT", "SQL", "DETAILS", "HISTORY"})
"""Columns and fields that hold SQL of users."""
PAGE_KEYS = 5_000
KEYS_MAX = 200_000


def answers(ask: Ask) -> Iterator[BundleEntry]:
    """Answers of the server to the paths of ANSWERS. A route that the server does not have, or that its user
    may not read, is left out."""
    for name, path in ANSWERS.items():
        answer = ask(path, CALL_S)
        if answer.status_code not in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE):
            continue
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        yield BundleEntry(name, json.dumps(_hidden(answer.json()), indent=2) if is_json else answer.text)


def views(query: Query) -> Iterator[BundleEntry]:
    """The views of SYSTEM, each as CSV. One without an answer is asked for once more, after the others; raises
    the last OSError where there is none again."""
    refused = {}
    failures: dict[str, OSError] = {}
    for names in ([view.name for view in SYSTEM_VIEWS], failures):
        for name in list(names):
            failures.pop(name, None)
            try:
                outcome = query(f"SELECT * FROM SYSTEM.{name}")
            except RuntimeError as error:
                refused[name] = str(error)
            except OSError as error:
                failures[name] = error
            else:
                columns = [str(column["name"]) for column in outcome.get("columns") or ()]
                yield BundleEntry(f"views/{name.lower()}.csv", _csv(columns, outcome.get("data") or ()))
    if refused:
        yield BundleEntry("views/refused.json", json.dumps(refused, indent=2))
    if failures:
        raise list(failures.values())[-1]


def member(one: MetastoreMember) -> Iterator[BundleEntry]:
    """Metrics of a member of etcd."""
    yield BundleEntry(f"metrics/etcd-{one.endpoint.replace(':', '-')}.txt", one.get("/metrics").text)


def nodes(data_dir: Path) -> Iterator[BundleEntry]:
    """Metrics of the nodes on this machine that registered: they answer without a server. One that does not
    answer is left out; an ``up`` that no server has run in knows none."""
    try:
        listed = json.loads((data_dir / TARGETS_FILE).read_text())
        token = (data_dir / SCRAPE_TOKEN_FILE).read_text().strip()
    except OSError:
        return
    for entry in listed:
        labels = entry["labels"]
        if labels["role"] != ProcessRole.NODE.value:
            continue
        url = f"{labels['__scheme__']}://{entry['targets'][0]}{labels['__metrics_path__']}"
        with suppress(httpx.HTTPError):
            answer = httpx.get(
                url, headers={"Authorization": f"Bearer {token}"}, timeout=CALL_S, trust_env=False
            )
            yield BundleEntry(f"metrics/{labels['node']}.txt", answer.raise_for_status().text)


def keyspace(members: Sequence[MetastoreMember], prefix: str) -> Iterator[BundleEntry]:
    """Keys with their revisions and sizes, from the first member that answers; no values."""
    rows, is_cut = first_answer(members, lambda channel: _keys(channel, prefix.encode()))
    names = ["key", "create_revision", "mod_revision", "version", "lease", "bytes"]
    yield BundleEntry("keyspace.csv", _csv(names, rows), is_cut)


def _keys(channel: Any, prefix: bytes) -> tuple[list[list[object]], bool]:
    """Rows of the keys with ``prefix`` at one revision, read page by page until they are ``KEYS_MAX`` or more;
    and True if keys are left."""
    start, end = prefix, prefix[:-1] + bytes([prefix[-1] + 1])
    rows: list[list[object]] = []
    revision = 0
    while True:
        request = rpc.RangeRequest(key=start, range_end=end, limit=PAGE_KEYS, revision=revision)
        reply = rpc.KVStub(channel).Range(request, timeout=CALL_S)
        revision = revision or reply.header.revision
        rows.extend(
            [
                item.key.decode(errors="replace"),
                *(item.create_revision, item.mod_revision, item.version, f"{item.lease:x}", len(item.value)),
            ]
            for item in reply.kvs
        )
        if not reply.more or len(rows) >= KEYS_MAX:
            return rows, bool(reply.more)
        start = reply.kvs[-1].key + b"\0"


def _csv(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(name, value) for name, value in zip(names, row, strict=True)] for row in rows)
    return stream.getvalue()


def _cell(name: str, value: object) -> object:
    if isinstance(value, str):
        return _statement(value) if name in STATEMENTS else value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value


def _hidden(body: object, name: str = "") -> object:
    """``body`` without the strings of statements in it."""
    if isinstance(body, dict):
        return {key: _hidden(value, str(key)) for key, value in body.items()}
    if isinstance(body, list):
        return [_hidden(value, name) for value in body]
    return _statement(body) if isinstance(body, str) and name.upper() in STATEMENTS else body


def _statement(sql: str) -> str:
    return without_literals(hide_secrets(sql))


COLLECTED_S, WRITTEN_S = 30.0, 45.0
"""Seconds from the start of the process after which no more parts are collected, and no more entries
written."""
LEAST_S = 10.0
ENTRY_BYTES_MAX = 8 << 20
TOTAL_BYTES_MAX = 90 << 20
"""Limit of all entries together before they are compressed; the file is smaller."""


Part = tuple[str, Callable[[], Iterable[BundleEntry]]]
"""Name of a part of the zip, and the function that collects its entries."""


def collect(target: Target) -> bytes:
    """Make the zip. Parts that hang, or do not fit any more, are left out and named in ``manifest.json``."""
    environment = dict(os.environ)
    scrubber = Scrubber(known_secrets(target.installation, environment))
    parts = dict(_parts(target, environment))
    limit_s = max(LEAST_S, COLLECTED_S - age_of_this_process_s())
    gathered = gather(list(parts.values()), limit_s)
    outcomes = zip(parts, gathered, strict=True)
    left_out = {name: scrubber.clean(each.failure) for name, each in outcomes if each.failure}
    if target.why_no_server:
        left_out["server"] = scrubber.clean(target.why_no_server)
    return _packed([entry for each in gathered for entry in each.items], left_out, scrubber)


def write(path: Path, content: bytes, *, overwrites: bool) -> None:
    """All of it or nothing, readable by its owner alone. Raises FileExistsError unless it ``overwrites``."""
    if overwrites:
        replace_privately(path, content)
        return
    draft = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        replace_privately(draft, content)
        # A link is refused where the name is taken, also when that was done just now.
        os.link(draft, path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def _parts(target: Target, environment: dict[str, str]) -> Iterator[Part]:
    installation = target.installation
    members = [MetastoreMember(endpoint, installation.tls) for endpoint in installation.endpoints]
    yield "doctor", partial(_doctor, target)
    yield "versions", versions
    yield "settings", partial(settings, installation, environment)
    if target.ask is not None:
        yield "answers of the server", partial(answers, target.ask)
    if installation.data_dir is not None:
        yield "metrics of nodes", partial(nodes, installation.data_dir)
    for one in members:
        yield f"metrics of etcd {one.endpoint}", partial(member, one)
    if target.query is not None:
        yield "views", partial(views, target.query)
    yield "logs", partial(logs, installation)
    if members:
        yield "keyspace", partial(keyspace, members, installation.prefix)


def _doctor(target: Target) -> Iterator[BundleEntry]:
    yield BundleEntry("doctor.json", json.dumps(report(examine(target)), indent=2))


def _packed(entries: Iterable[BundleEntry], left_out: dict[str, str], scrubber: Scrubber) -> bytes:
    stream = io.BytesIO()
    deadline = time.monotonic() + max(LEAST_S, WRITTEN_S - age_of_this_process_s())
    room = TOTAL_BYTES_MAX
    cut = []
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in entries:
            name = scrubber.clean(entry.name)
            if time.monotonic() > deadline:
                left_out[name] = "no time was left"
                continue
            text, is_cut = _clean(entry, scrubber, min(ENTRY_BYTES_MAX, room))
            if is_cut:
                cut.append(name)
            room -= len(text)
            archive.writestr(name, text)
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        manifest = {"made_at": made_at, "cut": cut, "left_out": left_out}
        archive.writestr("manifest.json", json.dumps(manifest, indent=2))
    return stream.getvalue()


def _clean(entry: BundleEntry, scrubber: Scrubber, most: int) -> tuple[bytes, bool]:
    """The whole lines that fit into ``most`` bytes, and whether that is not all."""
    text, is_short = _lines(entry.text, most)
    raw = scrubber.clean(text).encode(errors="replace")
    # What hides a secret may be longer than it, and a character longer than a byte.
    fits = len(raw) <= most
    return raw if fits else raw[: raw.rfind(b"\n", 0, most) + 1], entry.is_cut or is_short or not fits


def _lines(text: str, most: int) -> tuple[str, bool]:
    return (text, False) if len(text) <= most else (text[: text.rfind("\n", 0, most) + 1], True)
