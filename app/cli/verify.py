"""``zonectl verify``: a check that all replicas of a zone's partitions have the same sample keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from app.cli.connection import ObjectApi
from app.cli.exits import ExitCode, UsageError
from app.cli.names import fold_name
from app.cli.options import PartitionsOption, ZoneArgument, option
from app.cli.problems import JsonObject

if TYPE_CHECKING:
    from app.cli.client import ApiClient
    from app.contract.keys import CheckedPartition

AT_ONCE = 50
"""Partitions in one request."""
KEYS_SHOWN_MAX = 3
FORMAT = 1
Saved = dict[int, dict[str, str | None]]
"""Digests of values by partition and key."""


def verify(
    api: ObjectApi,
    zone: ZoneArgument,
    samples: Annotated[
        int, option("--samples", "Number of sample keys per partition.", "N", min=1, max=1000)
    ] = 10,
    seed: Annotated[int, option("--seed", "Seed of the choice of sample keys.", "S", min=0)] = 0,
    partition: PartitionsOption = None,
    save: Annotated[Path | None, option("--save", "Write the sample keys to FILE.", "FILE")] = None,
    keys: Annotated[Path | None, option("--keys", "Check the sample keys written by --save.", "FILE")] = None,
) -> int:
    """Read sample keys from every voter and learner, and report replicas that differ or are missing.

    Save keys before a rebalance and check them afterwards: each must be on every
    replica its partition has by then. Without --keys the sample is chosen by --seed
    from the keys the replicas hold. Keys whose value has changed since --save are
    counted; a change alone is no failure.

    \b
    Examples:
      zonectl verify orders
      zonectl verify orders --samples 100 --save orders.keys.json
      zonectl verify orders --keys orders.keys.json
      zonectl verify orders -p 3 --format json | jq '.partitions[].copies[]'

    Exit codes: 0 all replicas agree, 1 a replica lacks a key, differs, cannot be
    read or is missing, 3 server unreachable, 64 usage error, 130 interrupted.
    """
    saved = _read(keys) if keys is not None else None
    name, numbers = fold_name(zone), sorted(set(partition or ()))
    with api.client() as client:
        if not numbers:
            every = saved if saved is not None else range(client.ask("GET", "zones", name)["partitions"])
            numbers = sorted(every)
        results = list(_results(client, name, numbers, {"samples": samples, "seed": seed}, saved))
    changed = _changed(results, saved or {})
    if save is not None:
        _write(save, zone, seed, results)
    agrees = all(result["agrees"] for result in results)
    if api.is_table:
        disagreeing = [
            {"partition": result["partition"], **copy}
            for result in results
            for copy in result["copies"]
            if copy["lacking"] or copy["different"] or copy["error"]
        ]
        if disagreeing:
            named = {"partition": "partition", "node": "node", "role": "role"}
            api.show(disagreeing, {**named, "problem": _problem, "keys": _shown_keys})
    body = {"zone": zone, "seed": seed, "agrees": agrees, "changed": changed, "partitions": results}
    api.show_one(body, _summary(zone, results, changed if saved is not None else None))
    return ExitCode.OK if agrees and not _missing(results) else ExitCode.FAILED


def _results(
    client: ApiClient, zone: str, numbers: Sequence[int], sample: JsonObject, saved: Saved | None
) -> Iterator[CheckedPartition]:
    """Yield the results by partition, requested some at a time."""
    for start in range(0, len(numbers), AT_ONCE):
        part = list(numbers[start : start + AT_ONCE])
        request: JsonObject = {"partitions": part, **sample}
        if saved is not None:
            request["saved"] = [{"partition": number, "keys": list(saved.get(number, ()))} for number in part]
        yield from client.ask("POST", "zones", zone, "verify", body=request)["partitions"]


def _changed(results: Sequence[CheckedPartition], saved: Saved) -> int:
    """Count the saved keys that have another value by now."""
    changed = 0
    for result in results:
        digests = saved.get(result["partition"], {})
        for key in result["keys"]:
            changed += key["key"] in digests and key["digest"] not in (None, digests[key["key"]])
    return changed


def _missing(results: Sequence[CheckedPartition]) -> int:
    """Count the replicas that are missing and not being made. Servers of earlier builds do not report them."""
    return sum(result.get("missing", 0) for result in results)


def _summary(zone: str, results: Sequence[CheckedPartition], changed: int | None) -> str:
    copies = [copy for result in results for copy in result["copies"]]
    bad = sum(bool(copy["lacking"] or copy["different"] or copy["error"]) for copy in copies)
    keys = sum(len(result["keys"]) for result in results)
    empty = sum(not result["copies"] for result in results)
    read = sum(not copy["error"] for copy in copies)
    wanted = sum(max(len(result["copies"]), result.get("wanted", 0)) for result in results)
    parts = [f"{keys} keys in {len(results)} partitions", f"{read} of {wanted} replicas read"]
    parts += [f"{changed} values changed since --save"] if changed is not None else []
    parts += [f"{empty} partitions without a replica"] if empty else []
    missing = _missing(results)
    verdicts = [f"{missing} replica{' is' if missing == 1 else 's are'} missing"] if missing else []
    verdicts += [f"{bad} replicas disagree" if bad else "those read agree" if missing else "all replicas agree"]
    return f"{zone}: {', '.join(parts)}: {', '.join(verdicts)}"


def _problem(copy: JsonObject) -> str:
    if copy["error"]:
        return f"not read: {copy['error']}"
    return ", ".join(f"{len(copy[kind])} {kind}" for kind in ("lacking", "different") if copy[kind])


def _shown_keys(copy: JsonObject) -> str:
    keys = [] if copy["error"] else [*copy["lacking"], *copy["different"]]
    more = f" and {len(keys) - KEYS_SHOWN_MAX} more" if len(keys) > KEYS_SHOWN_MAX else ""
    return ", ".join(keys[:KEYS_SHOWN_MAX]) + more


def _write(path: Path, zone: str, seed: int, results: Sequence[CheckedPartition]) -> None:
    """Write the sample keys. Raises UsageError."""
    partitions = [{"partition": result["partition"], "keys": result["keys"]} for result in results]
    document = {"v": FORMAT, "zone": zone, "seed": seed, "partitions": partitions}
    try:
        path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def _read(path: Path) -> Saved:
    """Read saved sample keys. Raises UsageError."""
    try:
        document = json.loads(path.read_text())
        if document["v"] != FORMAT:
            raise ValueError(f"format {document['v']} is not supported, {FORMAT} is")
        return {
            int(part["partition"]): {str(key["key"]): key["digest"] for key in part["keys"]}
            for part in document["partitions"]
        }
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} was not written by `zonectl verify --save`: {error!r}") from error
