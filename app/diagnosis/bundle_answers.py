"""Entries of a debug zip that servers and etcd are asked for."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import grpc
import httpx
from aetcd import rpc

from app.configuration.local_server import SCRAPE_TOKEN_FILE, TARGETS_FILE
from app.diagnosis.bundle_files import BundleEntry
from app.diagnosis.metastore_probes import MetastoreMember
from app.diagnosis.scrubbing import without_literals
from app.diagnosis.server_probes import Ask, Query
from app.sql.views.system_views import SYSTEM_VIEWS
from parser.hidden_secrets import hide_secrets
from rebalance.core.keyspace.self_reports import ProcessRole

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
    """What the server says by itself. A route that it has not, or that is not for its user, is left out."""
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
    last = OSError("no endpoint is known")
    for one in members:
        try:
            with one.channel() as channel:
                rows, is_cut = _keys(channel, prefix.encode())
        except OSError as error:
            last = error
        except grpc.RpcError as error:
            last = OSError(f"{one.endpoint}: {error.code().name}: {error.details()}")
        else:
            names = ["key", "create_revision", "mod_revision", "version", "lease", "bytes"]
            yield BundleEntry("keyspace.csv", _csv(names, rows), is_cut)
            return
    raise last


def _keys(channel: Any, prefix: bytes) -> tuple[list[list[object]], bool]:
    """At one revision; whether there are more."""
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
