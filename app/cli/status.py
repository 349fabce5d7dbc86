"""``zonectl status``: the state of everything on one screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from app.cli.address import addresses_of
from app.cli.alerts import alert_lines
from app.cli.connection import ObjectApi
from app.cli.exits import ExitCode
from app.cli.follow import FollowProgress, say_pages
from app.cli.limits import summary
from app.cli.output import print_table, say, table_columns
from app.cli.problems import JsonObject, ProblemError
from app.contract.change_text import describe_params
from app.contract.columns import columns_of
from app.contract.nodes import NodeBody
from app.contract.zones import ZoneBody

if TYPE_CHECKING:
    from app.cli.client import ApiClient
    from app.contract.health import AlertBody

DEGRADED_MAX = 20
NODE_FIELDS = ("name", "alive", "members", "copies", "attributes", "profiles")


def status(api: ObjectApi) -> int:
    """Show what is out of order, each service, limits, alerts, nodes and zones.

    For the `zonectl up` of the data directory all addresses are shown, including
    those of etcd and of each node's members. A zone with learners shows what they,
    or its other replicas, wait for.

    Exit code 1 when the catalog or the metastore does not respond, or something is
    out of order that a page alert is about: partitions that take no writes, a full
    disk, no controller.

    \b
    Examples:
      zonectl status
      zonectl status --format json | jq .nodes
    """
    with api.client() as client:
        ready = client.readiness()
        answers = ready["ready"] and ready.get("metastore") == "ok"
        nodes = list(client.nodes()) if ready["ready"] else []
        listed = client.ask("GET", "zones")["zones"] if ready["ready"] else ()
        zones = [_with_progress(client, zone) for zone in listed]
        limits = _limits(client) if answers else None
        alerts = _alerts(client)
        url = client.address.url
    addresses = addresses_of(url, api.data_dir)
    body = {"url": url, "ready": ready, "nodes": nodes, "zones": zones, "limits": limits, "alerts": alerts}
    api.show_one(
        {**body, "addresses": addresses},
        *_lines(url, ready, addresses),
        *(summary(limits) if limits else ()),
        *alert_lines(alerts),
    )
    if api.is_table and nodes:
        say()
        print_table(
            nodes,
            table_columns(
                NodeBody,
                *(name for name in NODE_FIELDS if name != "copies" or any(node.get(name) for node in nodes)),
                alive=lambda node: ("yes" if node.get("alive") else "NO") + _drain(node),
                members=lambda node: f"{_count(node, 'members')}/{_count(node, 'member_limit')}",
            ),
        )
    if api.is_table and zones:
        say()
        columns = table_columns(ZoneBody, "name", "parameters", parameters=zone_parameters)
        print_table(zones, {**columns, "waits for": _causes})
    if api.is_table:
        say_pages(_all_causes(ready, zones))
    is_page = any(part.get("severity") == "page" for part in ready.get("degraded") or ())
    return ExitCode.OK if answers and not is_page else ExitCode.FAILED


def _count(node: Mapping[str, Any], name: str) -> object:
    return "?" if node.get(name) is None else node[name]


def _with_progress(client: ApiClient, zone: ZoneBody) -> Mapping[str, Any]:
    """The zone as listed; one with learners also with its ``progress``, since no move waits for their
    copies."""
    if not zone.get("learners"):
        return zone
    return {**zone, "progress": client.progress(zone["zone_id"], zone["catalog_version"])}


def _limits(client: ApiClient) -> JsonObject | None:
    """Limits of moves; None: their key cannot be read, as readiness reports, and all else is shown."""
    try:
        return dict(client.ask("GET", "rebalance", "limits"))
    except ProblemError as error:
        if error.problem.name != "RECORD_NOT_READABLE":
            raise
        return None


def _alerts(client: ApiClient) -> Sequence[AlertBody]:
    """Alerts; none from a server of an earlier build, which does not judge any."""
    try:
        return tuple(client.ask("GET", "alerts")["alerts"])
    except ProblemError as error:
        if error.problem.status != HTTPStatus.NOT_FOUND:
            raise
        return ()


def _lines(url: str, ready: JsonObject, addresses: JsonObject | None) -> Iterator[str]:
    yield f"{url}: {ready.get('state') or ('ready' if ready['ready'] else 'not ready')}"
    message = f" ({ready['spark_message']})" if ready.get("spark_message") else ""
    stores = f"catalog {ready.get('catalog')}, metastore {ready.get('metastore')}"
    yield f"{stores}, controller {ready.get('controller') or 'none'}, spark {ready.get('spark')}{message}"
    degraded = ready.get("degraded") or ()
    for part in degraded[:DEGRADED_MAX]:
        since = f" (since {part['since']})" if part.get("since") else ""
        yield f"{part['part']}: {part['cause']}{since}"
    if len(degraded) > DEGRADED_MAX:
        yield f"and {len(degraded) - DEGRADED_MAX} more: `zonectl status --format json`"
    for missing in ready.get("unprotected") or ():
        yield f"NOT PROTECTED: {missing}"
    for notice in ready.get("upgrade") or ():
        yield f"UPGRADE: {notice}"
    for recovered in ready.get("recovered_administrators") or ():
        yield f"RECOVERED: {recovered}"
    for process in (ready.get("background") or {}).get("processes") or ():
        if count := process.get("defects"):
            last = process.get("last_defect")
            yield f"defects in {process['process']}: {count}, the last: {last}; see its log"
    if addresses:
        members = ", ".join(f"{name} {where}" for name, where in addresses["nodes"].items())
        yield f"etcd at {addresses['etcd']}, members at {members}"
        if tls := addresses.get("tls"):
            yield f"certificate for etcd and members: {tls['certificate']}"
        if addresses["console"]:
            yield f"console at {addresses['console']}"


def _drain(node: JsonObject) -> str:
    """State of a drain, ``, draining by alice: new disks``; empty for a node that stays."""
    drain = node.get("drain")
    if not drain:
        return ""
    reason = f": {drain['reason']}" if drain["reason"] else ""
    return f", {drain['state'].lower()} by {drain['by']}{reason}"


def zone_parameters(zone: JsonObject, row: type = ZoneBody) -> str:
    """Options of a zone, with the numbers of voters and learners of a partition."""
    options = [name for name, column in columns_of(row).items() if column.about.is_option]
    names = (*options, "voters", "learners")
    return describe_params({name: zone[name] for name in names if zone.get(name) is not None})


def _all_causes(ready: JsonObject, zones: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for part in ready.get("degraded") or ():
        yield str(part["cause"])
    for zone in zones:
        for item in zone.get("progress", {}).get("causes") or ():
            yield str(item["cause"])


def _causes(zone: JsonObject) -> str:
    return FollowProgress.from_body("", zone["progress"]).reasons() if "progress" in zone else ""
