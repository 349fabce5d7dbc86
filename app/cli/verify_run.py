"""What ``zonectl verify`` does once its options are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.cli.client import ApiClient
from app.cli.connection import connected
from app.cli.exits import ExitCode, UsageError
from app.cli.names import fold_name
from app.cli.options import OutputFormat
from app.cli.output import print_rows
from app.cli.say import say, say_json
from app.client.problem import JsonObject

AT_ONCE = 50
"""Partitions in one request."""
KEYS_SHOWN = 3
FORMAT = 1


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    samples: int
    seed: int
    partitions: tuple[int, ...]
    save: Path | None
    keys: Path | None


Saved = dict[int, dict[str, str | None]]
"""By partition the digest of each key's value."""


def verify_zone(zone: str, options: VerifyOptions, url: str | None, data_dir: Path, form: OutputFormat) -> int:
    """Raises CliError."""
    if form is OutputFormat.CSV:
        raise UsageError("verify prints one object, csv holds rows: choose json or jsonl")
    saved = _read(options.keys) if options.keys is not None else None
    with connected(url, data_dir, form) as client:
        checked = list(_checked(client, zone, options, saved))
    changed = _changed(checked, saved or {})
    if options.save is not None:
        _write(options.save, zone, options.seed, checked)
    agrees = all(each["agrees"] for each in checked)
    if form is OutputFormat.TABLE:
        _print(zone, checked, changed if saved is not None else None)
    else:
        body = {"zone": zone, "seed": options.seed, "agrees": agrees, "changed": changed, "partitions": checked}
        say_json(body, indent=2 if form is OutputFormat.JSON else None)
    return ExitCode.OK if agrees else ExitCode.FAILED


def _checked(client: ApiClient, zone: str, options: VerifyOptions, saved: Saved | None) -> Iterator[JsonObject]:
    """Partition by partition, some at a time. Raises CliError."""
    numbers: Sequence[int] = options.partitions
    if not numbers:
        numbers = sorted(saved) if saved is not None else range(client.zone(fold_name(zone))["partitions"])
    for start in range(0, len(numbers), AT_ONCE):
        part = list(numbers[start : start + AT_ONCE])
        body: JsonObject = {"partitions": part, "samples": options.samples, "seed": options.seed}
        if saved is not None:
            body["saved"] = [{"partition": each, "keys": list(saved.get(each, ()))} for each in part]
        yield from client.verify(fold_name(zone), body)["partitions"]


def _changed(checked: Sequence[JsonObject], saved: Saved) -> int:
    """Saved keys that have another value by now."""
    return sum(
        each["digest"] is not None and each["digest"] != saved.get(found["partition"], {}).get(each["key"])
        for found in checked
        for each in found["keys"]
        if each["key"] in saved.get(found["partition"], {})
    )


def _print(zone: str, checked: Sequence[JsonObject], changed: int | None) -> None:
    rows = [
        (str(found["partition"]), each["node"], each["role"], *_verdict(each))
        for found in checked
        for each in found["copies"]
        if each["lacking"] or each["different"] or each["error"]
    ]
    if rows:
        print_rows(("partition", "node", "role", "what", "keys"), rows)
    copies = sum(len(found["copies"]) for found in checked)
    keys = sum(len(found["keys"]) for found in checked)
    told = f"{zone}: {keys} keys in {len(checked)} partitions, {copies} copies read"
    since = f", {changed} values changed since they were saved" if changed is not None else ""
    empty = sum(not found["copies"] for found in checked)
    without = f", {empty} partitions without a copy" if empty else ""
    say(f"{told}{since}{without}: " + (f"{len(rows)} copies do not agree" if rows else "all agree"))


def _verdict(copy: JsonObject) -> tuple[str, str]:
    if copy["error"]:
        return f"not read: {copy['error']}", ""
    parts = [(word, copy[word]) for word in ("lacking", "different") if copy[word]]
    shown = [key for _, keys in parts for key in keys]
    more = f" and {len(shown) - KEYS_SHOWN} more" if len(shown) > KEYS_SHOWN else ""
    return ", ".join(f"{len(keys)} {word}" for word, keys in parts), ", ".join(shown[:KEYS_SHOWN]) + more


def _write(path: Path, zone: str, seed: int, checked: Sequence[JsonObject]) -> None:
    """Raises UsageError."""
    partitions = [{"partition": found["partition"], "keys": found["keys"]} for found in checked]
    document = {"v": FORMAT, "zone": zone, "seed": seed, "partitions": partitions}
    try:
        path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def _read(path: Path) -> Saved:
    """Raises UsageError."""
    try:
        document = json.loads(path.read_text())
        if document["v"] != FORMAT:
            raise ValueError(f"format {document['v']} is not known, {FORMAT} is")
        return {
            int(found["partition"]): {str(each["key"]): each["digest"] for each in found["keys"]}
            for found in document["partitions"]
        }
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        message = f"{path} is no file that `zonectl verify --save` wrote: {error!r}"
        raise UsageError(message) from error
