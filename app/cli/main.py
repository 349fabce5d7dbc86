"""``zonectl``: the command line.

The table below lists all commands with a line of help each. The module of a command is imported when the
command runs or prints its own help, so that ``zonectl --help`` answers at once.

For one release, former commands, options and environment variables are reported with their replacements.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

from app.cli.command_help import CommandGroup, Commands
from app.cli.exits import CliError, ExitCode, UsageError

COMMANDS = {
    "Local installation": {
        "up": ("app.cli.up", "Run everything on this machine until Ctrl-C."),
        "demo": ("app.cli.demo", "Add replicas to a zone under load and verify every step."),
    },
    "Client": {
        "sql": ("app.cli.sql", "Run SQL statements, and follow the moves they cause."),
        "check": ("app.cli.check", "Validate a DDL script without a server."),
        "plan": ("app.cli.plan", "Show what a set of DDL files would change."),
        "apply": ("app.cli.plan", "Make the catalog match a set of DDL files."),
        "login": ("app.cli.login_commands", "Log in to a server, and use it when no other is named."),
        "logout": ("app.cli.login_commands", "Revoke the login's token and forget it."),
        "whoami": ("app.cli.login_commands", "Show the current user, its roles, and when the login ends."),
        "console-link": ("app.cli.login_commands", "Create a link that logs in to the console once."),
        "token": ("app.cli.token_commands", "Create, list and revoke tokens for programs."),
        "kv": ("app.cli.kv", "Put and get keys of a zone."),
        "verify": ("app.cli.verify", "Compare sample keys on all replicas of a zone."),
        "status": ("app.cli.status", "Show the health of the installation, its nodes and zones."),
        "alerts": ("app.cli.alerts", "List the alerts that fire, and silence some for a time."),
        "operations": ("app.cli.operations", "List, watch and control operations that move data."),
        "log": ("app.cli.log", "Show and change the log levels of all processes."),
        "audit": ("app.cli.audit", "List changes, who made them, and why."),
        "recovery": ("app.cli.recovery", "Inspect partition health and recover from a lost majority."),
        "rebalance": ("app.cli.rebalance", "Limit, pause and resume moves."),
        "metastore": ("app.cli.metastore", "Compare catalog and etcd, and continue after a restore."),
        "upgrade": ("app.cli.upgrade", "Upgrade to the next version, and finalise the upgrade."),
    },
    "Diagnosis": {
        "doctor": ("app.cli.doctor", "Check an installation, and say what to do."),
        "debug": ("app.cli.debug", "Create a support bundle."),
    },
    "Offline analysis": {
        "place": ("app.cli.place", "Compute a placement for a set of nodes."),
        "whatif": ("app.cli.analysis", "Compare candidate topologies."),
        "skew": ("app.cli.analysis", "Show how evenly a placement spreads replicas."),
        "transfers": ("app.cli.analysis", "Show what a change of placement copies."),
        "copies": ("app.cli.analysis", "Compare the OWNING copies of each partition."),
        "store": ("app.cli.store", "Check the files of a store server."),
    },
    "Services": {
        "serve": ("app.cli.services", "Serve the API."),
        "controller": ("app.cli.services", "Run the controllers."),
        "node": ("app.cli.node", "Run a data node; drain or remove one."),
        "admin": ("app.cli.admin", "Recover an administrator on the machine of the catalog."),
        "migrate": ("app.cli.services", "Bring the catalog's schema up to date."),
        "health": ("app.cli.health", "Check one process of an installation."),
    },
}
FORMER_COMMANDS = {"simulate": "it is `python -m simulator` in a checkout of the source now"}
"""Commands of the previous release, with their replacements."""
FORMER_OPTIONS = {"--json": ("--format", "--format json"), "--server": ("--url", "--url")}
"""Options of the previous release, with the one that replaces each, and how that is typed."""
CLICK_USAGE_CODE = 2


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name, in the order of the table; a command is built when it is first looked up."""

    def __init__(self) -> None:
        self._modules = {name: module for part in COMMANDS.values() for name, (module, _) in part.items()}
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            module = import_module(self._modules[name])
            group = getattr(module, "app", None)
            self._built[name] = (
                _group(group, name) if group else _single(getattr(module, name.replace("-", "_")))
            )
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class LazyGroup(CommandGroup):
    """``zonectl`` itself. Its list of commands comes from the table, not from the commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": None})
        self.commands = LazyCommands()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, commands in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, summary) for name, (_, summary) in commands.items()])


def _group(group: typer.Typer, name: str) -> Any:
    group.rich_markup_mode, group.info.name = None, name
    return typer.main.get_group(group)


def _single(function: Callable[..., int | None]) -> Any:
    command = Commands()
    command.command()(function)
    return typer.main.get_command(command)


app = Commands(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(asked: bool) -> None:
    if asked:
        from app.process.build import build_line

        print(f"zonectl {build_line()}")
        raise typer.Exit


@app.callback()
def zonectl(
    version: Annotated[
        bool, typer.Option("--version", help="Show version and commit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Zonekeeper keeps data where SQL says it should be.

    \b
    Getting started:
      zonectl up            (everything on this machine, until Ctrl-C)
      zonectl sql -e "CREATE ZONE orders (PARTITIONS 8)" --wait
      zonectl kv put orders o-17 paid
      zonectl sql -e "ALTER ZONE orders SET (REPLICAS 3)" --wait
      zonectl status

    Settings of connections and processes can also be given as environment variables, named in their help.

    Exit codes: 0 success, 1 refused, 3 server unreachable, 4 timed out, 6 the
    version is below the installation's release level, 64 usage error, 130
    interrupted.
    """


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: list[str]) -> int:
    """Run one command line and return its exit code; an error is one line on stderr."""
    try:
        _check_texts(arguments)
        if arguments and arguments[0] in FORMER_COMMANDS:
            raise UsageError(f"zonectl {arguments[0]} is gone: {FORMER_COMMANDS[arguments[0]]}")
        _warn_of_variables(arguments)
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
    """Refuse bytes that are no text before anything is done. Raises UsageError."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("ZONEKEEPER_")}
    for name, text in (*((f"argument {n}", text) for n, text in enumerate(arguments, 1)), *variables.items()):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{name} is not UTF-8 text: {text!a}") from error


def _warn_of_variables(arguments: list[str]) -> None:
    """Warn of exported variables that only earlier releases read."""
    if not any(name.startswith("ZONEKEEPER_") for name in os.environ):
        return

    for variable, instead in former_variables(_command(), arguments, os.environ):
        print(f"zonectl: {variable} is ignored; type {instead}", file=sys.stderr)


@cache
def _command() -> Callable[..., Any]:
    """The command of ``app``, kept for all command lines of this process: most run in less time than it takes
    to build."""
    return typer.main.get_command(app)


def _flush() -> None:
    """Flush stdout. If its reader has left (as ``| head`` does), or the terminal is closed, nothing more is
    written, not even by the interpreter's own flush at exit."""
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
        # The message is the help itself.
        print(error.format_message(), file=sys.stderr)
    elif instead := _typed_now(error):
        print(f"{command}: {instead}", file=sys.stderr)
    else:
        print(f"{command}: {error.format_message()}\nTry `{command} --help`.", file=sys.stderr)
    return ExitCode.USAGE


def _typed_now(error: typer.TyperException) -> str:
    """Hint for an option of the previous release that the command has replaced; else empty."""
    former = getattr(error, "option_name", "")
    name, typed = FORMER_OPTIONS.get(former, ("", ""))
    context = getattr(error, "ctx", None)
    names = {own for option in context.command.params for own in option.opts} if context is not None else set()
    return f"{former} is gone: it is {typed} now" if name in names else ""


PREFIX = "ZONEKEEPER_"


def former_variables(
    command: Any, arguments: Sequence[str], environment: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the variables that are set and belonged to an option of the command that ``arguments`` name, with
    what to type instead; not for an option that is typed. ``command``: ``zonectl`` itself."""
    present = {name for name in environment if name.startswith(PREFIX)}
    if not present:
        return
    words: list[str] = []
    for word in arguments:
        commands = getattr(command, "commands", None)
        if commands is None:
            break
        if word in commands:
            command = commands[word]
            words.append(word)
    for option in command.params:
        if option.param_type_name != "option":
            continue
        for flag in (flag for flag in (*option.opts, *option.secondary_opts) if flag.startswith("--")):
            if any(argument.partition("=")[0] == flag for argument in arguments):
                continue
            name = flag.removeprefix("--").replace("-", "_").upper()
            names = (PREFIX + name, *(f"{PREFIX}{word.upper()}_{name}" for word in words))
            for variable in present.intersection(names) - {option.envvar, *_settings()}:
                yield variable, flag if option.is_flag else f"{flag} {option.metavar or 'VALUE'}"


def _settings() -> frozenset[str]:
    """Variables that are settings of processes."""
    # It takes long to import, and there is hardly ever such a variable.
    from app.configuration.settings import Settings

    return frozenset(PREFIX + field.upper() for field in Settings.model_fields)
