"""``zonectl simulate``: the whole control plane in virtual time, from a seed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from app.cli.exits import UsageError
from app.cli.services import RebalanceStrategy


class SimulationFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


def simulate(
    context: typer.Context,
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", help="Everything that happens is drawn from it.")
    ] = 1,
    nodes: Annotated[int, typer.Option("--nodes", min=3, metavar="N", help="Nodes at the start.")] = 5,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, metavar="P", help="Partitions of all zones together.")
    ] = 8,
    events: Annotated[
        int,
        typer.Option(
            "--events", min=0, metavar="E", help="ALTERs, joins, leaves, crashes, pauses; then faults stop."
        ),
    ] = 12,
    strategy: Annotated[
        RebalanceStrategy,
        typer.Option("--strategy", help="What a new target does while a move runs: wait, or take its place."),
    ] = RebalanceStrategy.QUEUE,
    cluster_moves: Annotated[
        int | None,
        typer.Option(
            "--cluster-moves",
            min=1,
            metavar="N",
            help="At most N partitions move at once; other limits and pauses come and go.",
            show_default="no limits",
        ),
    ] = None,
    staying: Annotated[
        bool,
        typer.Option(
            "--staying",
            help="Heal nothing: nodes never return, disks stay full, links stay cut; moves must still end.",
        ),
    ] = False,
    stealing: Annotated[
        bool,
        typer.Option(
            "--stealing",
            help="Voldemort's rebalancing among servers of its kind instead; takes --seed and --format only.",
        ),
    ] = False,
    form: Annotated[
        SimulationFormat, typer.Option("--format", help="`json` is one object, for scripts.")
    ] = SimulationFormat.TEXT,
) -> int:
    """Run the control plane in virtual time, break things, and check every invariant after each step.

    The controllers, the guarded writes and (up to 1,000 partitions) the nodes'
    agents are those of the product. Metastore, network, clock and replication
    groups are simulated, so a run takes seconds, needs no server and does exactly
    the same each time. Larger runs simulate nodes and groups as arrays.

    \b
    Examples:
      zonectl simulate --seed 7
      zonectl simulate --seed 7 --nodes 9 --partitions 200 --events 40
      zonectl simulate --seed 7 --partitions 24 --cluster-moves 2
      zonectl simulate --seed 2 --partitions 4 --events 8 --staying
      zonectl simulate --seed 1 --nodes 1000 --partitions 1000000 --events 10
      zonectl simulate --stealing --seed 7
      for s in $(seq 100); do zonectl simulate --seed $s >/dev/null || break; done

    With --staying two faults last for ever, up to 1,000 partitions. What cannot
    come to rest because of them must name its cause, and is listed with it.

    The printed digest covers every write and every step: two runs with the same
    options print the same one. A broken invariant is named with its seed and
    step; the same command shows it again.

    Exit codes: 0 every invariant held, 1 one was broken, 64 wrong usage, 130 Ctrl-C.
    """
    if stealing:
        _refuse_others(context)
        from app.cli.simulate_stealing import simulate_stealing

        return simulate_stealing(seed, as_json=form is SimulationFormat.JSON)
    from app.cli.simulate_run import simulate_and_print
    from rebalance.simulation.run import AGENT_PARTITIONS_MAX, Simulation

    if staying and partitions > AGENT_PARTITIONS_MAX:
        raise UsageError(f"--staying: faults stay with at most {AGENT_PARTITIONS_MAX:,} partitions")
    wanted = Simulation(
        *(seed, nodes, partitions, events, strategy.value),
        cluster_moves=cluster_moves,
        staying=() if staying else None,
    )
    return simulate_and_print(wanted, as_json=form is SimulationFormat.JSON)


def _refuse_others(context: typer.Context) -> None:
    """Raises UsageError: the seed alone draws what a rebalancing of that kind is about."""
    given = [
        f"--{name.replace('_', '-')}"
        for name in ("nodes", "partitions", "events", "strategy", "cluster_moves", "staying")
        if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
    ]
    if given:
        raise UsageError(f"{', '.join(given)}: --stealing takes --seed and --format only")
