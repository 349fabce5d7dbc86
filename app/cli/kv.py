"""``zonectl kv``: one key of a zone, to see that data stays what and where it should be.

The next write of a key abandons writes of earlier commands whose outcome is unknown. They are listed in a file
of the user's own, beside the contexts. The file is only a help: if it cannot be read, no writes are abandoned.
"""

from __future__ import annotations

import fcntl
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

from app.cli.address import contexts_file, origin_of
from app.cli.connection import Api, RowsApi
from app.cli.exits import CliError, ExitCode, UsageError
from app.cli.names import fold_name
from app.cli.options import OutputFormat, ZoneArgument, argument, group, option
from app.cli.output import say, say_json
from app.cli.problems import NoAnswerError, ProblemError
from app.contract.keys import TIMEOUT_MAX_S, ReadFrom
from rebalance.core.keyspace.write_terms import ABANDONED_MAX, WriteTerms
from rebalance.groups.calls.key_text import check_key, check_operation_id
from rebalance.hosting.private_files import replace_privately

if TYPE_CHECKING:
    from app.contract.keys import GetResult, PutResult


FILE_NAME = "given-up-writes.json"
KEPT_S = 900.0
"""Time for which a store zone keeps operation ids; groups keep them for less."""

Writes = dict[str, dict[str, float]]
"""Operation ids by place, each with its time (UTC, seconds)."""


class GivenUpWrites:
    """Writes of one key at one server that were given up with an unknown outcome."""

    def __init__(self, url: str, zone: str, key: str) -> None:
        self._place = json.dumps([origin_of(url), zone, key])

    def of(self, but: str) -> tuple[str, ...]:
        """The newest operation ids, oldest first, without ``but``, which is being sent again."""
        ids = [operation for operation in _read().get(self._place, {}) if operation != but]
        return tuple(ids[-ABANDONED_MAX:])

    def add(self, operation: str) -> None:
        _change(lambda writes: writes.setdefault(self._place, {}).update({operation: time.time()}))

    def settle(self, operations: Iterable[str]) -> None:
        settled = set(operations)
        if not _read().get(self._place, {}).keys() & settled:
            return

        def settle(writes: Writes) -> None:
            ids = writes.get(self._place, {})
            writes[self._place] = {name: at for name, at in ids.items() if name not in settled}

        _change(settle)


def _file() -> Path:
    return contexts_file().with_name(FILE_NAME)


def _read() -> Writes:
    """Read the writes that may still be applied."""
    now = time.time()
    try:
        body = json.loads(_file().read_text())
        return {
            place: {name: at for name, at in ids.items() if 0 <= now - float(at) <= KEPT_S}
            for place, ids in body.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _change(change: Callable[[Writes], object]) -> None:
    path = _file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.with_name(f"{FILE_NAME}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            writes = _read()
            change(writes)
            kept = {place: ids for place, ids in writes.items() if ids}
            replace_privately(path, json.dumps(kept).encode())
    except OSError as error:
        say(f"warning: {path}: {error.strerror}; the next put does not abandon this one", out=sys.stderr)


app = group("Put, get and delete keys of a zone; each key belongs to one partition.")
KeyArgument = Annotated[str, argument("KEY", "Any text; its hash determines the partition.")]


TimeoutOption = Annotated[
    float | None,
    option(
        "--timeout",
        "Give up after S seconds (exit code 4).",
        "S",
        min=0.1,
        max=TIMEOUT_MAX_S,
        default="the server's 15 s",
    ),
]


@dataclass(frozen=True, slots=True)
class WriteTermsOptions:
    """Conditions of a write, and the time for which its outcome is awaited."""

    operation_id: Annotated[
        str | None,
        option(
            "--operation-id", "A write repeated with the same ID is applied once.", "ID", default="a new ID"
        ),
    ] = None
    if_revision: Annotated[
        int | None,
        option("--if-revision", "Only if KEY was written last at revision N.", "N", min=1, default="any"),
    ] = None
    if_absent: Annotated[bool, option("--if-absent", "Only if KEY does not exist.")] = False
    timeout: TimeoutOption = None


@app.command()
def put(
    api: RowsApi,
    zone: ZoneArgument,
    key: KeyArgument,
    value: Annotated[str, argument("VALUE", "Text to store; `-` reads it from stdin unchanged.")],
    options: WriteTermsOptions,
) -> None:
    """Store VALUE under KEY.

    Returns once a majority of the partition's voters has stored it, or every in-sync
    copy where store servers keep the zone. If the outcome is unknown (exit code 4),
    repeat the put with the operation ID that is printed; or put another value: the
    next put or delete of KEY abandons this one, which then does not take its place.

    \b
    Examples:
      zonectl kv put orders o-17 paid
      zonectl kv put orders o-17 paid --if-absent --timeout 2
      zonectl kv put '"Mixed case"' o-17 - < value.txt
    """
    _write(api, zone, key, _stdin_text() if value == "-" else value, options)


@app.command()
def delete(api: RowsApi, zone: ZoneArgument, key: KeyArgument, options: WriteTermsOptions) -> None:
    """Delete KEY.

    Deleting a key that does not exist succeeds. Otherwise as `kv put`.

    \b
    Examples:
      zonectl kv delete orders o-17
      zonectl kv delete orders o-17 --if-revision 1200
    """
    _write(api, zone, key, None, options)


def _write(api: Api, zone: str, key: str, text: str | None, options: WriteTermsOptions) -> None:
    operation, name = _checked(check_operation_id, options.operation_id or uuid4().hex), fold_name(zone)
    _checked(check_key, key, "KEY: ")
    if options.if_revision is not None and options.if_absent:
        raise UsageError("give --if-revision or --if-absent, not both")
    again = f"\nrepeat it with --operation-id {operation}"
    with api.client() as client:
        given_up = GivenUpWrites(client.address.url, name, key)
        terms = WriteTerms(options.if_revision, options.if_absent, given_up.of(but=operation))
        try:
            written = client.write(name, key, text, operation, terms, options.timeout)
        except KeyboardInterrupt:
            given_up.add(operation)
            raise
        except (NoAnswerError, ProblemError) as error:
            is_refusal = isinstance(error, ProblemError)
            if is_refusal and error.exit_code is not ExitCode.TIMED_OUT:
                raise
            given_up.add(operation)
            if is_refusal and not api.is_table:
                raise
            raise CliError(error.exit_code, f"{error}{again}") from error
        given_up.settle((operation, *terms.abandons))
    _show(api, written)


@app.command()
def get(
    api: RowsApi,
    zone: ZoneArgument,
    key: KeyArgument,
    read: Annotated[
        ReadFrom,
        option("--read", "Replica that answers: the leader, a learner, or any replica but the leader."),
    ] = ReadFrom.LEADER,
    at_revision: Annotated[
        int | None,
        option("--at-revision", "Read at or after revision N of the group.", "N", min=1, default="none"),
    ] = None,
    at_time: Annotated[
        str | None,
        option(
            "--at-time",
            "See all writes acknowledged before TIME (ISO 8601).",
            "TIME",
            default="now",
        ),
    ] = None,
    timeout: TimeoutOption = None,
) -> None:
    """Print the value of KEY.

    It is the newest acknowledged value, whichever replica answers. Exit code 1: the key does not exist. With
    --at-revision or --at-time a replica answers without asking the leader, as soon as it has reached that
    point; exit code 4 if it has not within 5 s.

    \b
    Examples:
      zonectl kv get orders o-17
      zonectl kv get orders o-17 --format json
      zonectl kv get orders o-17 --read learner
      zonectl kv get orders o-17 --read replica --at-revision 1200
      zonectl kv get orders o-17 --read learner --at-time 2026-05-17T09:30:00Z
    """
    options = _read_options(read, at_revision, at_time)
    with api.client() as client:
        answer = client.get(fold_name(zone), _checked(check_key, key, "KEY: "), options, timeout)
    if api.is_table:
        print(answer["value"])
    else:
        _show(api, answer)


def _read_options(read: ReadFrom, at_revision: int | None, at_time: str | None) -> dict[str, str | int]:
    points = {
        name: value for name, value in (("at_revision", at_revision), ("at_time", at_time)) if value is not None
    }
    flags = ["--" + name.replace("_", "-") for name in points]
    if len(flags) > 1:
        raise UsageError("give --at-revision or --at-time, not both")
    if flags and read is ReadFrom.LEADER:
        raise UsageError(f"{flags[0]} is for --read learner and --read replica")
    return {} if read is ReadFrom.LEADER else {"read": read.value, **points}


def _checked(check: Callable[[str], None], text: str, place: str = "") -> str:
    try:
        check(text)
    except ValueError as error:
        raise UsageError(f"{place}{error}") from error
    return text


def _stdin_text() -> str:
    raw = sys.stdin.buffer.read()
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"VALUE on stdin is not UTF-8 text (byte {error.start})") from error


def _show(api: Api, answer: GetResult | PutResult) -> None:
    """Print one row; as JSON the object itself."""
    if api.output in (OutputFormat.TABLE, OutputFormat.CSV):
        api.show([answer], {name: name for name in answer})
    else:
        say_json(answer)
