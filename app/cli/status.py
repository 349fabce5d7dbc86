"""``zonectl status``: the state of everything on one screen."""

from __future__ import annotations

from app.cli.exits import ExitCode, UsageError
from app.cli.options import DEFAULT_DATA_DIR, DataDirOption, FormatOption, OutputFormat, UrlOption


def status(
    form: FormatOption = OutputFormat.TABLE,
    url: UrlOption = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Show what is not in order, the state of each part, the limits of moves, the nodes and the zones.

    Of the `zonectl up` that runs in the data directory it shows all addresses,
    also those of etcd and of each node's members. A zone with learners says what
    they, or its other replicas, wait for.

    Exit code 1 when catalog or metastore do not answer.

    \b
    Examples:
      zonectl status
      zonectl status --format json | jq .nodes
    """
    from app.cli.address import addresses_of
    from app.cli.connection import connected
    from app.cli.status_view import limits_of, print_status, with_progress

    if form is OutputFormat.CSV:
        raise UsageError("status has three tables, csv holds one: choose json or jsonl")
    with connected(url, data_dir, form) as client:
        ready = client.readiness()
        answers = ready["ready"] and ready["metastore"] == "ok"
        nodes = client.nodes() if ready["ready"] else ()
        zones = [with_progress(client, zone) for zone in client.zones()] if ready["ready"] else []
        limits = limits_of(client) if answers else None
    addresses = addresses_of(client.address.url, data_dir)
    print_status(client.address.url, ready, nodes, zones, limits, form, addresses)
    return ExitCode.OK if answers else ExitCode.FAILED
