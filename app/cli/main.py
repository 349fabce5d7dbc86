"""``zonectl``: the command line. A command imports what it needs when it runs, so that --help is instant."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import typer

from app.cli import (
    analysis,
    audit,
    check,
    demo,
    drain,
    kv,
    metastore,
    operations,
    place,
    plan,
    rebalance,
    recovery,
    services,
    simulate,
    sql,
    status,
    up,
    verify,
    whatif,
)
from app.cli.exits import CliError, ExitCode, UsageError

app = typer.Typer(
    name="zonectl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Zonekeeper: where data lives, said in SQL.

    \b
    Begin:
      zonectl up            (everything on this machine, until Ctrl-C)
      zonectl sql -e "CREATE ZONE orders (PARTITIONS 8)" --wait
      zonectl kv put orders o-17 paid
      zonectl sql -e "ALTER ZONE orders SET (REPLICAS 3)" --wait
      zonectl status

    Every option can be set in the environment; its help names the variable.

    Exit codes: 0 done, 1 refused, 3 no server, 4 time-out, 64 wrong usage, 130 Ctrl-C.""",
)

node = typer.Typer()
node.callback(invoke_without_command=True)(services.node)
drain.add_to(node)

app.command(rich_help_panel="One machine")(up.up)
app.command(rich_help_panel="One machine")(demo.demo)
app.command(rich_help_panel="Clients")(sql.sql)
app.command(rich_help_panel="Clients")(check.check)
app.command(rich_help_panel="Clients")(plan.plan)
app.command(rich_help_panel="Clients")(plan.apply)
app.add_typer(kv.app, name="kv", rich_help_panel="Clients")
app.command(rich_help_panel="Clients")(verify.verify)
app.command(rich_help_panel="Clients")(status.status)
app.add_typer(operations.app, name="operations", rich_help_panel="Clients")
app.command(rich_help_panel="Clients")(audit.audit)
app.add_typer(recovery.app, name="recovery", rich_help_panel="Clients")
app.add_typer(rebalance.app, name="rebalance", rich_help_panel="Clients")
app.add_typer(metastore.app, name="metastore", rich_help_panel="Clients")
app.command(rich_help_panel="Without a server")(place.place)
app.command(rich_help_panel="Without a server")(whatif.whatif)
app.command(rich_help_panel="Without a server")(analysis.skew)
app.command(rich_help_panel="Without a server")(analysis.transfers)
app.command(rich_help_panel="Without a server")(analysis.copies)
app.command(rich_help_panel="Without a server")(simulate.simulate)
app.command(rich_help_panel="Services")(services.serve)
app.command(rich_help_panel="Services")(services.controller)
app.add_typer(node, name="node", rich_help_panel="Services")
app.command(rich_help_panel="Services")(services.migrate)

CLICK_USAGE_CODE = 2


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code; everything that ends it early is one line on stderr."""
    try:
        _check_texts(arguments)
        result = _command()(arguments, prog_name="zonectl", standalone_mode=False)
    except typer.TyperException as error:
        return _usage(error)
    except CliError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return ExitCode.FAILED
    finally:
        _flush()
    return int(result or 0)


def _check_texts(arguments: list[str]) -> None:
    """Bytes that are no text are refused before anything is done. Raises UsageError."""
    named = {name: value for name, value in os.environ.items() if name.startswith("ZONEKEEPER_")}
    for what, text in (*((f"argument {n}", text) for n, text in enumerate(arguments, 1)), *named.items()):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{what} is not UTF-8 text: {text!a}") from error


@cache
def _command() -> Callable[..., Any]:
    """Of ``app``, for every command line of this process: to build it takes longer than most lines run."""
    return typer.main.get_command(app)


def _flush() -> None:
    """The reader may have left (as ``| head`` does), the terminal may be closed: then nothing more is written,
    not even by the interpreter's own flush at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "zonectl"
    if error.exit_code != CLICK_USAGE_CODE:
        print(f"{command}: {error.format_message()}", file=sys.stderr)
        return error.exit_code
    if type(error).__name__ == "NoArgsIsHelpError":
        # The message is the help itself (already printed by Rich where it is in use).
        print(error.format_message(), file=sys.stderr)
    else:
        print(f"{command}: {error.format_message()}\nTry `{command} --help`.", file=sys.stderr)
    return ExitCode.USAGE
