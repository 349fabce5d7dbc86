"""Options that several commands share, each with its environment variable."""

from __future__ import annotations

import getpass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.exits import UsageError

if TYPE_CHECKING:
    from app.configuration.settings import Settings

DEFAULT_DATA_DIR = Path("zonekeeper-data")


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="ZONEKEEPER_URL",
        metavar="URL",
        help="Where the API is. Default: the `zonectl up` that runs in the data directory.",
    ),
]
DataDirOption = Annotated[
    Path,
    typer.Option("--data-dir", envvar="ZONEKEEPER_DATA_DIR", metavar="DIR", help="Everything is kept here."),
]
FormatOption = Annotated[
    OutputFormat, typer.Option("--format", envvar="ZONEKEEPER_FORMAT", help="How results are printed.")
]
WaitOption = Annotated[
    bool,
    typer.Option(
        "--wait", envvar="ZONEKEEPER_WAIT", help="Stay until every zone that was changed has converged."
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        envvar="ZONEKEEPER_TIMEOUT",
        min=0,
        metavar="S",
        help="With --wait: give up after S seconds (exit code 4).",
        show_default="no limit",
    ),
]
ReasonOption = Annotated[
    str,
    typer.Option(
        "--reason", envvar="ZONEKEEPER_REASON", metavar="TEXT", help="Why: shown with all that it concerns."
    ),
]
ByOption = Annotated[
    str | None,
    typer.Option(
        "--by",
        envvar="ZONEKEEPER_BY",
        metavar="NAME",
        help="Who wants it, to be asked.",
        show_default="the user's name",
    ),
]
HostOption = Annotated[
    str | None,
    typer.Option(
        "--host", envvar="ZONEKEEPER_HOST", help="Address that the API listens on.", show_default="127.0.0.1"
    ),
]
PortOption = Annotated[
    int | None,
    typer.Option("--port", envvar="ZONEKEEPER_PORT", min=0, max=65535, help="Port of the API; 0: a free one."),
]
CatalogOption = Annotated[
    str | None,
    typer.Option(
        "--catalog-url",
        envvar="ZONEKEEPER_CATALOG_URL",
        metavar="URL",
        help="Database of the catalog, as postgresql+psycopg://... .",
        show_default="SQLite in the data directory",
    ),
]
MetastoreOption = Annotated[
    str | None,
    typer.Option(
        "--metastore",
        envvar="ZONEKEEPER_METASTORE",
        metavar="HOST:PORT,...",
        help="etcd endpoints.",
        show_default="127.0.0.1:2379",
    ),
]
SparkOption = Annotated[
    str | None,
    typer.Option(
        "--spark-master",
        envvar="ZONEKEEPER_SPARK_MASTER",
        metavar="URL",
        help="Spark master.",
        show_default="local[*]",
    ),
]


def asker(by: str | None) -> str:
    """The name that ``--by`` gives, or the user's. Raises UsageError."""
    if by:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise UsageError("the user has no name here: say with --by who wants it") from None


def make_settings(**given: object) -> Settings:
    """The environment's settings with the given (not None) options on top. Raises UsageError."""
    from pydantic import ValidationError

    from app.configuration.settings import Settings

    overrides: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        settings = Settings(**overrides)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"ZONEKEEPER_{where.upper()}: {first['msg']}") from error
    try:
        _ = settings.tls, settings.trust
    except ValueError as error:
        raise UsageError(str(error)) from error
    return settings
