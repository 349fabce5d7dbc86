"""``zonectl node``: a data node; ``drain | undrain | can-stop`` take one out of service and back, ``remove``
removes one that is gone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.connection import Api, ObjectApi
from app.cli.exits import ExitCode, UsageError
from app.cli.follow import LineView, watch
from app.cli.options import (
    DEFAULT_DATA_DIR,
    AuditNote,
    DataDirOption,
    DryRunOption,
    InsecureLinksOption,
    MetastoreOption,
    ReasonOption,
    TimeoutOption,
    YesOption,
    argument,
    group,
    make_settings,
    option,
    setting,
)
from app.cli.output import confirm, counted, print_table, say, table_columns
from app.cli.services import accept_links, keep_private, run_until_stopped

if TYPE_CHECKING:
    from app.contract.nodes import CanStop, DrainResult, LossBody, NodeBody, NodeRemoval


LOSSES_SHOWN_MAX = 20
app = group()
of_node = partial(setting, of="NODE_")
NameArgument = Annotated[str, argument("NAME", "Node name, as listed by `zonectl status`.")]


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Options of the node itself: each is a setting ``node_...``."""

    name: Annotated[
        str | None, of_node("--name", "Unique name of at most 63 letters, digits, '_', '.' and '-'.")
    ] = None
    attributes: Annotated[
        str | None, of_node("--attributes", "Attributes that NODES FILTER matches.", "JSON")
    ] = None
    profiles: Annotated[
        str | None, of_node("--profiles", "Storage profiles and the engine of their groups.", "P[=ENGINE],...")
    ] = None
    host: Annotated[str | None, of_node("--host", "IP address the members listen on.")] = None
    ports: Annotated[
        str | None,
        of_node("--ports", "Ports: two a member, and the last for the store server.", "FIRST-LAST"),
    ] = None
    member_limit: Annotated[
        int | None, of_node("--member-limit", "Maximum number of members and learners on this node.", min=1)
    ] = None
    weight: Annotated[
        float | None, of_node("--weight", "Share of balanced zones, relative to a node of weight 1.", "W")
    ] = None
    failure_domain: Annotated[
        str | None,
        of_node("--failure-domain", "Balanced zones spread a partition's voters over several.", "NAME"),
    ] = None
    start_without_metastore: Annotated[
        bool,
        of_node(
            "--start-without-metastore",
            "Start members of STRONG_CONSISTENCY zones while the metastore is unreachable.",
        ),
    ] = False
    trust_refusals: Annotated[
        bool,
        of_node(
            "--trust-refusals/--no-trust-refusals",
            "Treat refused connections to the metastore as an outage; not behind proxies.",
        ),
    ] = True
    strict_steps: Annotated[
        bool | None,
        of_node(
            "--strict-steps/--no-strict-steps", "Leave the check of membership steps to etcd (up to 5 s each)."
        ),
    ] = None


@app.callback(invoke_without_command=True)
def node(
    *,
    context: typer.Context,
    own: NodeOptions,
    metastore: MetastoreOption = None,
    insecure: InsecureLinksOption = False,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
) -> int:
    """Run one data node: its agent and the members of replication groups it supervises.

    With a subcommand no node is run: `drain`, `undrain` and `can-stop` take a
    node out of service and back, `remove` takes out one that is gone for good.

    \b
    Examples:
      zonectl node drain n3 --wait
      zonectl node --name eu-1 --attributes '{"region": "EU"}' --profiles default,ssd \\
                   --metastore etcd1:2379,etcd2:2379,etcd3:2379 --host 10.0.0.21 --ports 20000-20200

    On an address that other machines reach a node needs TLS: ZONEKEEPER_TLS_CA,
    ZONEKEEPER_TLS_CERTIFICATE, ZONEKEEPER_TLS_KEY and ZONEKEEPER_METASTORE_TLS.
    """
    if context.invoked_subcommand is not None:
        return ExitCode.OK
    from app.bootstrap.node import run_node
    from app.configuration.node_settings import member_ports, node_of

    given = {f"node_{name}": value for name, value in asdict(own).items()}
    settings = make_settings(metastore=metastore, data_dir=data_dir, **given)
    try:
        node_of(settings)
        member_ports(settings)
    except ValueError as error:
        raise UsageError(f"zonectl node: {error}") from error
    accept_links(settings, members=settings.node_host, insecure=insecure)
    keep_private(data_dir)
    return run_until_stopped(run_node(settings))


@app.command()
def drain(
    api: ObjectApi,
    name: NameArgument,
    note: AuditNote,
    wait: Annotated[bool, option("--wait", "Wait until the node holds no members and no copies.")] = False,
    timeout: TimeoutOption = None,
) -> int:
    """Move all replicas off a node, so that it can be stopped.

    The node stops being a data node of any zone, and serves its replicas until
    they have moved. AUTO SCALE DOWN timers do not apply. A node that restarts
    stays drained until `zonectl node undrain`. The command is refused if a zone
    would be left without a living data node.

    \b
    Examples:
      zonectl node drain n3 --reason "new disks" --wait
      zonectl node can-stop n3
      zonectl node undrain n3
    """
    with api.client() as client:
        drained = client.ask("PUT", "nodes", name, "drain", body=note.body())
        view = LineView()

        def is_empty(nodes: Sequence[NodeBody]) -> bool:
            entry = next((node for node in nodes if node["name"] == name), None)
            drained["members"] = entry["members"] if entry else 0
            drained["copies"] = entry["copies"] if entry else 0
            drained["drain"] = entry["drain"] if entry else None
            view.line(f"{name}: {_held(drained)} left")
            return _is_empty(drained)

        late = f"{name}: not empty yet; the drain goes on"
        is_done = not wait or watch(lambda _: client.nodes(), is_empty, view, timeout, late)
    is_empty_now = _is_empty(drained)
    state = "drained" if is_empty_now else f"draining, {_held(drained)} left"
    api.show_one(drained, f"node {name} {state}")
    return ExitCode.OK if is_done else ExitCode.TIMED_OUT


@app.command()
def undrain(api: ObjectApi, name: NameArgument, reason: ReasonOption = "") -> None:
    """Return a drained node to service.

    Zones may use it again, subject to their timers. A zone with AUTO SCALE UP OFF does not.

    \b
    Example:
      zonectl node undrain n3
    """
    with api.client(reason) as client:
        undrained = client.ask("DELETE", "nodes", name, "drain")
    api.show_one(undrained, f"node {name} {'back in service' if undrained['changed'] else 'was not drained'}")


@app.command()
def remove(
    api: ObjectApi,
    name: NameArgument,
    note: AuditNote,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    wait: Annotated[bool, option("--wait", "Wait until the node is removed.")] = False,
    timeout: TimeoutOption = None,
) -> int:
    """Remove a node that is gone for good.

    Its replicas are rebuilt on other nodes from the remaining copies. Then its records are deleted: without
    --wait, when the command is repeated. The moves are shown first. The command is refused while the node is
    alive, and where a partition would be left without a majority or a copy.

    The old node never comes back: its directory cannot be started again. With an empty directory it joins as a
    new node.

    \b
    Examples:
      zonectl node remove n3 --dry-run
      zonectl node remove n3 --wait --reason "mainboard"
      zonectl node remove n3 --yes --format json
    """
    body = note.body()
    with api.client(note.reason) as client:
        ask = partial(client.ask, "POST", "nodes", name, "removal")
        removal: NodeRemoval = ask(body={**body, "dry_run": True})
        say(f"{name}: {_to_move(removal)}", out=sys.stderr)
        if dry_run or removal["losses"]:
            counts = ", ".join(f"{count} {loss}" for loss, count in removal["losses"].items())
            verdict = f"is needed: {counts}" if counts else "can be removed"
            api.show_one(removal, f"node {name} {verdict}")
            _print_losses(api, removal["partitions"])
            return ExitCode.FAILED if counts else ExitCode.OK
        if not yes:
            confirm(f"Remove node {name} for good?", "review the line above")
        view = LineView()

        def is_removed(answer: NodeRemoval) -> bool:
            removal.update(answer)
            view.line(f"{name}: {_to_move(answer)}")
            return not wait or answer["state"] == "REMOVED"

        late = f"{name}: not removed yet; its replicas go on moving"
        is_done = watch(lambda _: ask(body=body), is_removed, view, timeout, late)
    left = "removed" if removal["state"] == "REMOVED" else "draining: repeat the command once nothing is left"
    api.show_one(removal, f"node {name} {left}")
    return ExitCode.OK if is_done else ExitCode.TIMED_OUT


@app.command("can-stop")
def can_stop(api: ObjectApi, name: NameArgument) -> int:
    """Check whether a node can be stopped now.

    Lists what each partition would lose. LAST_COPY and MAJORITY speak against it:
    data or writes would be unavailable. LEADER does not: another member takes over
    within seconds. Exit code 0: the node can be stopped; 1: it cannot.

    \b
    Examples:
      zonectl node can-stop n3
      zonectl node can-stop n3 --format json | jq .losses
    """
    with api.client() as client:
        answer = client.ask("GET", "nodes", name, "can-stop")
    verdict = "can be stopped" if answer["can_stop"] else "cannot be stopped"
    counts = ", ".join(f"{count} {loss}" for loss, count in answer["losses"].items())
    held = _held(answer) + (f"; {counts}" if counts else "")
    api.show_one(answer, f"node {name} {verdict}: {held}")
    _print_losses(api, answer["partitions"])
    return ExitCode.OK if answer["can_stop"] else ExitCode.FAILED


def _print_losses(api: Api, losses: Sequence[LossBody]) -> None:
    if api.is_table and losses:
        from app.contract.nodes import LossBody

        columns = table_columns(LossBody, "partition", "loss", "detail", partition=_place)
        print_table(losses[:LOSSES_SHOWN_MAX], columns)
        if len(losses) > LOSSES_SHOWN_MAX:
            say(f"... and {len(losses) - LOSSES_SHOWN_MAX} more (--format json)")


def _place(loss: LossBody) -> str:
    return f"{loss['zone']}.{loss['partition']}"


def _to_move(removal: NodeRemoval) -> str:
    """Replicas to be rebuilt: ``7 replicas of ORDERS, PEOPLE to be rebuilt on other nodes``."""
    zones = removal["zones"]
    if not zones:
        return "no zone needs it"
    replicas = counted(sum(zones.values()), "replica")
    return f"{replicas} of {', '.join(zones)} to be rebuilt on other nodes"


def _is_empty(drained: DrainResult) -> bool:
    """True if the node holds nothing any more. A user who may not see all zones gets no counts, but the drain's
    state."""
    if drained["members"] is not None:
        return not (drained["members"] or drained["copies"])
    drain = drained.get("drain")
    return drain is not None and drain["state"] == "DRAINED"


def _held(node: DrainResult | CanStop) -> str:
    """Members and copies of a node: ``7 members``, with ``, 256 copies`` where it has some of store zones."""
    copies = node["copies"]
    if node["members"] is None:
        return "replicas"
    plural = "copy" if copies == 1 else "copies"
    return counted(node["members"], "member") + (f", {copies} {plural}" if copies else "")
