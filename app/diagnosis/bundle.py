"""The debug zip: what describes an installation, without its secrets and within limits of time and size."""

from __future__ import annotations

import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from app.diagnosis import bundle_answers, bundle_files
from app.diagnosis.bundle_files import BundleEntry
from app.diagnosis.checks import report
from app.diagnosis.examination import Target, examine
from app.diagnosis.metastore_probes import MetastoreMember
from app.diagnosis.rounds import gather
from app.diagnosis.scrubbing import Scrubber
from rebalance.hosting.age import age_of_this_process_s
from rebalance.hosting.private_files import replace_privately

COLLECTED_S, WRITTEN_S = 30.0, 45.0
"""From the start of the process: until then parts are collected, and entries written."""
LEAST_S = 10.0
ENTRY_BYTES_MAX = 8 << 20
TOTAL_BYTES_MAX = 90 << 20
"""Of all entries before they are compressed, so that the file is smaller."""


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    collect: Callable[[], Iterable[BundleEntry]]


def collect(target: Target) -> bytes:
    """The zip. What hangs, or does not fit any more, is left out and named in ``manifest.json``."""
    environment = dict(os.environ)
    scrubber = Scrubber(bundle_files.known_secrets(target.place, environment))
    parts = list(_parts(target, environment))
    limit_s = max(LEAST_S, COLLECTED_S - age_of_this_process_s())
    gathered = gather([part.collect for part in parts], limit_s)
    left_out = {
        part.name: scrubber.clean(each.failure)
        for part, each in zip(parts, gathered, strict=True)
        if each.failure
    }
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
    place = target.place
    members = [MetastoreMember(endpoint, place.tls) for endpoint in place.endpoints]
    yield Part("doctor", partial(_doctor, target))
    yield Part("versions", bundle_files.versions)
    yield Part("settings", partial(bundle_files.settings, place, environment))
    if target.ask is not None:
        yield Part("answers of the server", partial(bundle_answers.answers, target.ask))
    if place.data_dir is not None:
        yield Part("metrics of nodes", partial(bundle_answers.nodes, place.data_dir))
    for one in members:
        yield Part(f"metrics of etcd {one.endpoint}", partial(bundle_answers.member, one))
    if target.query is not None:
        yield Part("views", partial(bundle_answers.views, target.query))
    yield Part("logs", partial(bundle_files.logs, place))
    if members:
        yield Part("keyspace", partial(bundle_answers.keyspace, members, place.prefix))


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
        manifest = {
            "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "cut": cut,
            "left_out": left_out,
        }
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
