"""``zonectl verify``: whether all copies of a zone's partitions have the same sample keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.kv import ZoneArgument
from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, FormatOption, OutputFormat, UrlOption


def verify(
    zone: ZoneArgument,
    samples: Annotated[
        int,
        typer.Option(
            "--samples",
            envvar="ZONEKEEPER_SAMPLES",
            min=1,
            max=1000,
            metavar="N",
            help="Of each partition.",
        ),
    ] = 10,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", envvar="ZONEKEEPER_SEED", min=0, metavar="S", help="The same seed chooses the same keys."
        ),
    ] = 0,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="P", help="Only this one; several times for several."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE", help="Write the sample keys down, for --keys later."),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option("--keys", metavar="FILE", help="Look for the keys that --save wrote, where they are now."),
    ] = None,
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Read sample keys from every voter and every learner itself, and tell which copies lack or differ.

    Keys are saved before a rebalance and looked for after it: each must be on
    every copy that its partition has by then. Without --keys they are chosen by
    the seed from what the copies have. Keys whose value has changed since --save
    are counted; that alone is no fault.

    \b
    Examples:
      zonectl verify orders
      zonectl verify orders --samples 100 --save orders.keys.json
      zonectl verify orders --keys orders.keys.json
      zonectl verify orders -p 3 --format json | jq '.partitions[].copies[]'

    Exit codes: 0 all copies have the same, 1 a copy lacks a key, differs or cannot be read, 3 no server,
    64 wrong usage, 130 Ctrl-C.
    """
    from app.cli.verify_run import VerifyOptions, verify_zone

    options = VerifyOptions(samples, seed, tuple(sorted(set(partition or ()))), save, keys)
    return verify_zone(zone, options, url, data_dir, form)
