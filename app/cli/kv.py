"""``zonectl kv``: one key of a zone, to see that data stays what and where it should be."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Annotated, Any

import typer

from app.cli.exits import CliError, ExitCode, UsageError
from app.cli.names import fold_name
from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, FormatOption, OutputFormat, UrlOption


class ReadFrom(Enum):
    LEADER = "leader"
    LEARNER = "learner"
    REPLICA = "replica"


app = typer.Typer(no_args_is_help=True, help="Put and get keys of a zone; each key lives in one partition.")

ZoneArgument = Annotated[
    str, typer.Argument(metavar="ZONE", help='As in SQL: upper-cased, unless in "double quotes".')
]
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="Any text; its hash names the partition.")]


@app.command()
def put(
    zone: ZoneArgument,
    key: KeyArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Text; `-` reads it from stdin, as it is.")],
    operation_id: Annotated[
        str | None,
        typer.Option(
            "--operation-id",
            envvar="ZONEKEEPER_OPERATION_ID",
            metavar="ID",
            help="Repeating a put under the same ID changes nothing more.",
            show_default="a new one",
        ),
    ] = None,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Store VALUE under KEY. Returns once a majority of the partition's voters has it.

    When the outcome is not known (exit code 4), repeat the put with the operation
    ID that is printed.

    \b
    Examples:
      zonectl kv put orders o-17 paid
      zonectl kv put '"Mixed case"' o-17 - < value.txt
    """
    from uuid import uuid4

    from app.cli.address import find_address
    from app.cli.client import ApiClient, NoAnswerError, ProblemError
    from app.cli.problems import render_problem

    operation = _checked_operation(operation_id or uuid4().hex)
    text = _stdin_text() if value == "-" else value
    with ApiClient(find_address(url, data_dir)) as client:
        try:
            answer = client.put(fold_name(zone), _checked(key), text, operation)
        except NoAnswerError as error:
            raise CliError(error.exit_code, f"{error}\n{_again(operation)}") from error
        except ProblemError as error:
            line = render_problem(error.problem, form)
            known = error.exit_code is not ExitCode.TIMED_OUT or form is not OutputFormat.TABLE
            raise CliError(error.exit_code, line if known else f"{line}\n{_again(operation)}") from error
    _print(answer, form)
    return ExitCode.OK


@app.command()
def get(
    zone: ZoneArgument,
    key: KeyArgument,
    read: Annotated[
        ReadFrom,
        typer.Option(
            "--read",
            envvar="ZONEKEEPER_READ",
            help="Who answers: the leader; a standing learner; or any replica that does not lead.",
        ),
    ] = ReadFrom.LEADER,
    at_revision: Annotated[
        int | None,
        typer.Option(
            "--at-revision",
            envvar="ZONEKEEPER_AT_REVISION",
            metavar="N",
            min=1,
            help="As of revision N of the partition's group; the replica waits until it has it.",
            show_default="as of now",
        ),
    ] = None,
    at_time: Annotated[
        str | None,
        typer.Option(
            "--at-time",
            envvar="ZONEKEEPER_AT_TIME",
            metavar="TIME",
            help="With all that was acknowledged before TIME (ISO 8601 with a zone of time).",
            show_default="as of now",
        ),
    ] = None,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Print the value of KEY: the newest acknowledged one, whichever replica answers. Exit code 1: no such key.

    With --at-revision or --at-time a replica answers without asking the leader,
    as soon as it has that point; exit code 4 when it has not within 5 s.

    \b
    Examples:
      zonectl kv get orders o-17
      zonectl kv get orders o-17 --format json
      zonectl kv get orders o-17 --read learner
      zonectl kv get orders o-17 --read replica --at-revision 1200
      zonectl kv get orders o-17 --read learner --at-time 2026-05-17T09:30:00Z
    """
    from app.cli.connection import connected

    options = _read_options(read, at_revision, at_time)
    with connected(url, data_dir, form) as client:
        answer = client.get(fold_name(zone), _checked(key), options)
    if form is OutputFormat.TABLE:
        print(answer["value"])
    else:
        _print(answer, form)
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


def _checked(key: str) -> str:
    from rebalance.groups.key_text import check_key

    try:
        check_key(key)
    except ValueError as error:
        raise UsageError(f"KEY: {error}") from error
    return key


def _checked_operation(operation: str) -> str:
    from rebalance.groups.key_text import check_operation_id

    try:
        check_operation_id(operation)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return operation


def _stdin_text() -> str:
    raw = sys.stdin.buffer.read()
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"VALUE on stdin is not UTF-8 text (byte {error.start})") from error


def _again(operation: str) -> str:
    return f"repeat it with --operation-id {operation}"


def _print(answer: dict[str, Any], form: OutputFormat) -> None:
    from app.cli.output import print_objects, print_rows
    from app.cli.say import say_json

    if form is OutputFormat.TABLE:
        print_rows(list(answer), [[str(value) for value in answer.values()]])
    elif form is OutputFormat.CSV:
        print_objects([answer], form)
    else:
        say_json(answer)
