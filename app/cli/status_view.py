"""Printing what ``zonectl status`` found."""

from __future__ import annotations

from collections.abc import Sequence

from app.cli.client import ApiClient, ProblemError
from app.cli.followed import FollowProgress
from app.cli.options import OutputFormat
from app.cli.output import describe_params, print_rows
from app.cli.rebalance_view import summary
from app.cli.say import say, say_json
from app.client.problem import JsonObject

ZONE_COLUMNS = ("partitions", "replicas", "quorum_size", "voters", "learners", "storage_profiles")


def with_progress(client: ApiClient, zone: JsonObject) -> JsonObject:
    """``zone`` as listed, and where it has learners with its ``progress``: no move waits for their copies."""
    if not zone.get("learners"):
        return zone
    return {**zone, "progress": client.progress(zone["zone_id"], zone["catalog_version"])}


def limits_of(client: ApiClient) -> JsonObject | None:
    """None: their key cannot be read, which readiness tells; everything else is shown."""
    try:
        return client.limits()
    except ProblemError as error:
        if error.problem.name != "RECORD_NOT_READABLE":
            raise
        return None


def print_status(
    url: str,
    ready: JsonObject,
    nodes: Sequence[JsonObject],
    zones: Sequence[JsonObject],
    limits: JsonObject | None,
    form: OutputFormat,
    addresses: JsonObject | None = None,
) -> None:
    """``json`` and ``jsonl`` print one object with ``ready``, ``nodes``, ``zones``, ``limits``, ``addresses``
    (null: not known here)."""
    if form is not OutputFormat.TABLE:
        indent = 2 if form is OutputFormat.JSON else None
        body = {
            "url": url,
            "ready": ready,
            "nodes": list(nodes),
            "zones": list(zones),
            "limits": limits,
            "addresses": addresses,
        }
        say_json(body, indent=indent)
        return
    message = f" ({ready['spark_message']})" if ready.get("spark_message") else ""
    say(f"{url}: {ready.get('state') or ('ready' if ready['ready'] else 'not ready')}")
    stores = f"catalog {ready.get('catalog')}, metastore {ready.get('metastore')}"
    leader = f"controller {ready.get('controller') or 'none'}"
    say(f"{stores}, {leader}, spark {ready.get('spark')}{message}")
    for each in ready.get("degraded") or ():
        say(f"{each['part']}: {each['cause']}")
    for line in map(_defects, (ready.get("background") or {}).get("processes") or ()):
        if line:
            say(line)
    if addresses:
        members = ", ".join(f"{name} {where}" for name, where in addresses["nodes"].items())
        say(f"etcd at {addresses['etcd']}, members at {members}")
        if addresses["console"]:
            say(f"console at {addresses['console']}")
    for line in summary(limits) if limits else ():
        say(line)
    if nodes:
        say()
        print_rows(("node", "alive", "members", "attributes", "profiles"), [_node_row(node) for node in nodes])
    if zones:
        say()
        print_rows(("zone", "parameters", "waits for"), [_zone_row(zone) for zone in zones])


def _defects(process: JsonObject) -> str:
    """Empty for a process that has met none."""
    count = process.get("defects") or 0
    if not count:
        return ""
    return f"defects in {process['process']}: {count}, the last: {process.get('last_defect')}; see its log"


def _node_row(node: JsonObject) -> tuple[str, ...]:
    return (
        str(node["name"]),
        ("yes" if node.get("alive") else "NO") + _drain(node),
        f"{node.get('members', '?')}/{node.get('member_limit', '?')}",
        describe_params(node.get("attributes") or {}),
        ",".join(node.get("profiles") or ()),
    )


def _drain(node: JsonObject) -> str:
    """``, draining by alice: new disks``; empty for a node that stays."""
    found = node.get("drain")
    if not found:
        return ""
    reason = f": {found['reason']}" if found["reason"] else ""
    return f", {found['state'].lower()} by {found['by']}{reason}"


def _zone_row(zone: JsonObject) -> tuple[str, ...]:
    params = zone.get("params") or zone
    name = str(zone.get("name") or zone.get("zone"))
    told = describe_params({name: params[name] for name in ZONE_COLUMNS if name in params})
    return name, told, FollowProgress.from_body(name, zone["progress"]).reasons() if "progress" in zone else ""
