"""``zonectl metastore``: what to do when etcd or the catalog was restored from a backup."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from app.cli.exits import ExitCode, UsageError
from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, FormatOption, OutputFormat, UrlOption
from app.cli.say import counted, say, say_json

app = typer.Typer(
    no_args_is_help=True, help="Whether catalog and etcd belong together, and how to go on when they do not."
)


@app.command()
def status(
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Compare catalog and etcd now.

    Exit code 1 when nothing is written: one of them was restored from an older
    backup (DIVERGED), or etcd has no space left (FULL).

    \b
    Examples:
      zonectl metastore status
      zonectl metastore status --format json | jq -r .reason
    """
    from app.cli.connection import connected

    _one_object(form)
    with connected(url, data_dir, form) as client:
        found = client.metastore()
    if form is OutputFormat.TABLE:
        epoch = f"epoch {found['epoch']}, catalog version {found['catalog_version']}"
        say(f"{found['state']}: {epoch}, etcd cluster {found['cluster_id']} at revision {found['revision']}")
        if found["reason"]:
            say(found["reason"])
    else:
        say_json(found, indent=2 if form is OutputFormat.JSON else None)
    return ExitCode.OK if found["state"] == "AGREED" else ExitCode.FAILED


@app.command()
def adopt(
    yes: Annotated[
        bool, typer.Option("--yes", envvar="ZONEKEEPER_YES", help="Do not ask whether it is meant.")
    ] = False,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Take what catalog and etcd hold now for the truth, and go on.

    For the time after etcd or the catalog was restored from an older backup and
    the matching backup of the other is not to be had. The epoch is raised, every
    zone of the catalog is published again, and zones that only etcd knows are
    dropped WITH THEIR DATA. When both agree, nothing is done. What was found is
    shown first; when it is not so any more by the time of adopting, nothing is
    done.

    \b
    Examples:
      zonectl metastore status
      zonectl metastore adopt
      zonectl metastore adopt --yes --format json
    """
    from app.cli.connection import connected

    _one_object(form)
    with connected(url, data_dir, form) as client:
        shown = client.metastore()
        if shown["kind"]:
            say(f"epoch {shown['epoch']}, {shown['kind']}: {shown['reason']}", out=sys.stderr)
            if not yes:
                _ask()
        done = client.adopt_metastore(shown)
    if form is not OutputFormat.TABLE:
        say_json(done, indent=2 if form is OutputFormat.JSON else None)
    elif not done["adopted"]:
        say(f"catalog and etcd agree (epoch {done['epoch']}): nothing was done")
    else:
        dropped = f", dropped: {', '.join(done['dropped'])}" if done["dropped"] else ""
        say(f"epoch {done['epoch']}: {counted(done['published'], 'zone')} published again{dropped}")
    return ExitCode.OK


def _ask() -> None:
    if not sys.stdin.isatty():
        raise UsageError("nobody can be asked here whether it is meant: look first, then add --yes")

    typer.confirm("Publish the catalog anew, and drop zones that only etcd knows?", abort=True, err=True)


def _one_object(form: OutputFormat) -> None:
    if form is OutputFormat.CSV:
        raise UsageError("metastore prints one object, csv holds rows: choose json or jsonl")
