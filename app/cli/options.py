"""Options: how they are declared, those that several commands share, and what is read from them. Passwords come
from a terminal or from standard input, never as arguments.
"""

from __future__ import annotations

import getpass
import sys
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.command_help import Commands
from app.cli.exits import UsageError

if TYPE_CHECKING:
    from app.configuration.settings import Settings


DEFAULT_DATA_DIR = Path("zonekeeper-data")


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


class ObjectFormat(StrEnum):
    """Formats of commands that print one object, which csv has no rows for."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


def option(
    flags: str,
    summary: str,
    metavar: str | None = None,
    *,
    env: str | None = None,
    default: str = "",
    **more: Any,
) -> Any:
    """Declare an option. ``flags`` are separated by blanks.

    ``env``: its environment variable. Only ``setting`` gives one, so that the environment never decides what a
    command does.
    ``default``: the default that its help names. ``more``: arguments of ``typer.Option``, such as ``min``.
    """
    if default:
        more["show_default"] = default
    return typer.Option(*flags.split(), help=summary, metavar=metavar, envvar=env, **more)


def setting(flags: str, summary: str, metavar: str | None = None, *, of: str = "", **more: Any) -> Any:
    """Declare an option that is a setting of a connection or of a process, and so has a variable
    `ZONEKEEPER_...`: ``of`` and the first long flag make its name, unless ``env`` gives it."""
    long = next(flag for flag in flags.split() if flag.startswith("--")).partition("/")[0]
    name = f"ZONEKEEPER_{of}{long.removeprefix('--').replace('-', '_').upper()}"
    return option(flags, summary, metavar, **{"env": name, **more})


def argument(metavar: str, summary: str, **more: Any) -> Any:
    return typer.Argument(metavar=metavar, help=summary, **more)


def group(summary: str | None = None, **more: Any) -> Commands:
    """Make an app of several commands. Without a ``summary`` its callback has the help."""
    return Commands(**({} if summary is None else {"help": summary, "no_args_is_help": True}), **more)


UrlOption = Annotated[
    str | None,
    setting(
        "--url", "URL of the API.", "URL", default="the `zonectl up` of the data directory, else the last login"
    ),
]
DataDirOption = Annotated[Path, setting("--data-dir", "Directory that holds all data.", "DIR")]
FormatOption = Annotated[OutputFormat, option("--format", "Output format.")]
ObjectFormatOption = Annotated[ObjectFormat, option("--format", "Output format.")]
ZoneArgument = Annotated[
    str, argument("ZONE", 'Zone name, folded to upper case as in SQL unless in "double quotes".')
]
PartitionsOption = Annotated[
    list[int] | None,
    option("--partition -p", "Only this partition. May be repeated.", "N", default="all"),
]
WaitOption = Annotated[bool, option("--wait", "Wait until every changed zone has converged.")]
TimeoutOption = Annotated[
    float | None,
    option(
        "--timeout", "With --wait: stop waiting after S seconds (exit code 4).", "S", min=0, default="no limit"
    ),
]
ReasonOption = Annotated[str, option("--reason", "Reason recorded in the audit log.", "TEXT")]
ByOption = Annotated[
    str | None,
    option(
        "--by", "Name recorded in the audit log; ignored where you log in.", "NAME", default="the current user"
    ),
]
ForOption = Annotated[
    str | None,
    option(
        "--for", "Duration of the pause, for example 90s, 10m, 1h30m or 2d.", "TIME", default="until `resume`"
    ),
]
YesOption = Annotated[bool, option("--yes", "Do not prompt for confirmation.")]
DryRunOption = Annotated[bool, option("--dry-run", "Print what would be done, and change nothing.")]
InsecureOption = Annotated[
    bool,
    option("--insecure", "Listen for other machines without login or TLS. `status` shows which is missing."),
]
InsecureLinksOption = Annotated[bool, option("--insecure", "Connect to other machines without TLS.")]
CatalogOption = Annotated[
    str | None,
    setting(
        "--catalog-url",
        "Database URL of the catalog, for example postgresql+psycopg://user@host/db.",
        "URL",
        default="SQLite in the data directory",
    ),
]
MetastoreOption = Annotated[
    str | None, setting("--metastore", "etcd endpoints.", "HOST:PORT,...", default="127.0.0.1:2379")
]
SparkOption = Annotated[str | None, setting("--spark-master", "Spark master.", "URL", default="local[*]")]


@dataclass(frozen=True, slots=True)
class AuditNote:
    """Reason and author of a change."""

    reason: ReasonOption = ""
    by: ByOption = None

    def body(self) -> dict[str, Any]:
        """The fields of a request, with the user's name where none is given. Raises UsageError."""
        return {"by": asker(self.by), "reason": self.reason}

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """Options of a server of the API."""

    host: Annotated[str | None, setting("--host", "Address the API listens on.", default="127.0.0.1")] = None
    port: Annotated[
        int | None, setting("--port", "Port the API listens on; 0 picks a free one.", min=0, max=65535)
    ] = None
    https_port: Annotated[
        int | None, setting("--https-port", "Port of HTTPS; 0 picks a free one.", "N", min=0, max=65535)
    ] = None
    require_reason: Annotated[
        bool, setting("--require-reason", "Refuse changes without a reason, which the audit log keeps.")
    ] = False


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Options for the stores of a process, and for Spark."""

    catalog_url: CatalogOption = None
    metastore: MetastoreOption = None
    spark_master: SparkOption = None
    data_dir: DataDirOption = DEFAULT_DATA_DIR


def asker(by: str | None) -> str:
    """The author of a change: the name that ``--by`` gives, or the user's. Raises UsageError."""
    if by:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise UsageError("the current user has no name: give one with --by") from None


def make_settings(*groups: ApiOptions | StoreOptions, **given: object) -> Settings:
    """The environment's settings with the given (not None) options on top. Raises UsageError."""
    from pydantic import ValidationError

    from app.configuration.settings import Settings

    for group in groups:
        given |= asdict(group)
    overrides: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        settings = Settings(**overrides)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"ZONEKEEPER_{where.upper()}: {first['msg']}") from error
    try:
        _ = settings.tls, settings.trust, settings.catalog
    except ValueError as error:
        raise UsageError(str(error)) from error
    return settings


PasswordInput = Annotated[
    bool, option("--password-stdin", "Read the password from the first line of standard input.")
]


def read_password(name: str, from_stdin: bool) -> str:
    """Read a password from stdin or the terminal. Raises UsageError."""
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = getpass.getpass(f"Password of {name}: ")
    else:
        raise UsageError("there is no terminal to ask for the password: give it with --password-stdin")
    if not password:
        raise UsageError("the password is empty")
    return password
