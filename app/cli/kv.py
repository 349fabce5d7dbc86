"""``zonectl kv``: one key of a zone, to see that data stays what and where it should be."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

from app.cli.connection import Api, client_command
from app.cli.exits import CliError, ExitCode, UsageError
from app.cli.names import fold_name
from app.cli.options import OutputFormat, ZoneArgument, argument, group, option
from app.cli.request_errors import NoAnswerError
from app.cli.say import say_json
from app.contract.read_from import ReadFrom
from rebalance.groups.key_text import check_key, check_operation_id

if TYPE_CHECKING:
    from app.contract.keys import GetResult, PutResult


app = group("Put and get keys of a zone; each key belongs to one partition.")
KeyArgument = Annotated[str, argument("KEY", "Any text; its hash determines the partition.")]


@app.command()
@client_command
def put(
    api: Api,
    zone: ZoneArgument,
    key: KeyArgument,
    value: Annotated[str, argument("VALUE", "Text to store; `-` reads it from stdin unchanged.")],
    operation_id: Annotated[
        str | None,
        option("--operation-id", "A put repeated with the same ID is applied once.", "ID", default="a new ID"),
    ] = None,
) -> int:
    """Store VALUE under KEY.

    Returns once a majority of the partition's voters has stored it, or every in-sync
    copy where store servers keep the zone. If the outcome is unknown (exit code 4),
    repeat the put with the operation ID that is printed.

    \b
    Examples:
      zonectl kv put orders o-17 paid
      zonectl kv put '"Mixed case"' o-17 - < value.txt
    """
    operation = _checked(check_operation_id, operation_id or uuid4().hex)
    text = _stdin_text() if value == "-" else value
    again = f"\nrepeat it with --operation-id {operation}"
    try:
        with api.client() as client:
            stored = client.put(fold_name(zone), _checked(check_key, key, "KEY: "), text, operation)
    except NoAnswerError as error:
        raise CliError(error.exit_code, f"{error}{again}") from error
    except CliError as error:
        if error.exit_code is not ExitCode.TIMED_OUT or not api.is_table:
            raise
        raise CliError(error.exit_code, f"{error}{again}") from error
    _show(api, stored)
    return ExitCode.OK


@app.command()
@client_command
def get(
    api: Api,
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
) -> int:
    """Print the value of KEY.

    It is the newest acknowledged value, whichever replica answers. Exit code 1:
    there is no such key. With --at-revision or --at-time a replica answers without
    asking the leader, as soon as it has reached that point; exit code 4 if it has
    not within 5 s.

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
        answer = client.get(fold_name(zone), _checked(check_key, key, "KEY: "), options)
    if api.is_table:
        print(answer["value"])
    else:
        _show(api, answer)
    return ExitCode.OK


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
    """One row; as JSON the object itself."""
    if api.form in (OutputFormat.TABLE, OutputFormat.CSV):
        api.show([answer], {name: name for name in answer})
    else:
        say_json(answer)
