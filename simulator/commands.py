"""Commands of ``python -m simulator``: the control plane, and store servers under faults, from a seed.

What commands of the simulator have in common: their options, and how a broken run ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, NoReturn

import typer

from catalog.core.zone import Strategy
from simulator.control.run import AGENT_PARTITIONS_MAX, Simulation, SimulationReport, simulate
from simulator.store.store_run import StoreRun
from simulator.store.store_world import StoreRuleBrokenError

PROGRAM = "python -m simulator"


class SimulationFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


SeedOption = Annotated[int, typer.Option("--seed", metavar="S", help="Seed of all random choices.")]
FormatOption = Annotated[SimulationFormat, typer.Option("--format", help="Output format.")]


def print_json(document: Mapping[str, Any]) -> None:
    print(json.dumps(document, ensure_ascii=False, indent=2))


def end_broken(reason: str, command: str) -> NoReturn:
    """End with exit code 1, a line that says what broke, and the ``command`` that shows it again."""
    typer.echo(f"{reason}\nto reproduce: {PROGRAM} {command}", err=True)
    raise typer.Exit(1)


NodesOption = Annotated[int, typer.Option("--nodes", metavar="N", min=3, help="Number of nodes at the start.")]
PartitionsOption = Annotated[
    int, typer.Option("--partitions", metavar="P", min=1, help="Number of partitions of all zones together.")
]
EventsOption = Annotated[
    int,
    typer.Option("--events", metavar="E", min=0, help="Number of ALTERs, joins, leaves, crashes and pauses."),
]
StrategyOption = Annotated[
    Strategy, typer.Option("--strategy", help="How a new target affects a move in progress.")
]
ClusterMovesOption = Annotated[
    int | None,
    typer.Option(
        "--cluster-moves",
        metavar="N",
        min=1,
        show_default="no limits",
        help="Maximum number of concurrent moves; other limits and pauses come and go.",
    ),
]
StayingOption = Annotated[
    bool, typer.Option("--staying", help="Repair no fault: nodes stay down, disks full, links cut.")
]


def simulate_control(
    seed: SeedOption = 1,
    nodes: NodesOption = 5,
    partitions: PartitionsOption = 8,
    events: EventsOption = 12,
    strategy: StrategyOption = Strategy.QUEUE,
    cluster_moves: ClusterMovesOption = None,
    staying: StayingOption = False,
    form: FormatOption = SimulationFormat.TEXT,
) -> None:
    """Simulate controllers and node agents.

    The control plane runs in virtual time, faults are injected, and every
    invariant is checked after each step. Controllers, guarded writes and (up to
    1,000 partitions) node agents are the real ones. Metastore, network, clock and
    replication groups are simulated, so that a run takes seconds, needs no server
    and is reproducible. Larger runs simulate nodes and groups as arrays.

    \b
    Examples:
      python -m simulator control --seed 7
      python -m simulator control --seed 7 --nodes 9 --partitions 200 --events 40
      python -m simulator control --seed 7 --partitions 24 --cluster-moves 2
      python -m simulator control --seed 2 --partitions 4 --events 8 --staying
      python -m simulator control --seed 1 --nodes 1000 --partitions 1000000 --events 10

    With --staying two faults are permanent, with up to 1,000 partitions. Moves that
    cannot end because of them must name the cause, and are listed with it.

    The printed digest covers every write and every step: two runs with the same
    options print the same digest. A violated invariant is reported with its seed
    and step; the same command reproduces it.

    Exit codes: 0 all invariants held, 1 one was violated, 2 usage error.
    """
    if staying and partitions > AGENT_PARTITIONS_MAX:
        raise typer.BadParameter(f"--staying: faults stay with at most {AGENT_PARTITIONS_MAX:,} partitions")
    faults = () if staying else None
    simulation = Simulation(
        seed, nodes, partitions, events, strategy.value, cluster_moves=cluster_moves, staying=faults
    )
    report = simulate(simulation)
    if form is SimulationFormat.JSON:
        print_json(_control_document(report))
    else:
        _print_text(report)
    if report.broken is not None:
        broken = report.broken
        end_broken(
            f"seed {seed}, step {broken.step}, {broken.at_s:.3f} s: broken invariant: {broken.invariant}\n"
            f"{broken.detail}",
            command_of(simulation),
        )


def command_of(simulation: Simulation) -> str:
    """The arguments that show the same run again."""
    cap = "" if simulation.cluster_moves is None else f" --cluster-moves {simulation.cluster_moves}"
    stays = "" if simulation.staying is None else " --staying"
    return (
        f"control --seed {simulation.seed} --nodes {simulation.nodes} "
        f"--partitions {simulation.partitions} --events {simulation.events} "
        f"--strategy {simulation.strategy}{cap}{stays}"
    )


def _print_text(report: SimulationReport) -> None:
    for at_s, line in report.lines:
        print(f"{at_s:10.3f} s  {line}")
    for partition, cause in report.held.items():
        print(f"held up     {partition}: {cause}")
    groups = "nodes and groups as arrays" if report.simulation.is_bulk else "real agents"
    verdict = "every invariant held" if report.broken is None else "an invariant is broken"
    print(f"{verdict}: {report.steps} steps in {report.virtual_s:.1f} s of virtual time, {groups}")
    print(f"{report.switches} switches of stable, {report.revision} revisions of the metastore")
    print(f"digest {report.digest}")
    print(f"took {report.elapsed_s:.1f} s and at most {report.memory_mb:.0f} MB")


def _control_document(report: SimulationReport) -> dict[str, Any]:
    simulation, broken = report.simulation, report.broken
    given = ("seed", "nodes", "partitions", "strategy", "cluster_moves")
    counts = ("held", "digest", "steps", "switches", "operations_done", "moves_begun", "revision")
    return {
        **{name: getattr(simulation, name) for name in given},
        "bulk": simulation.is_bulk,
        "staying": simulation.staying is not None,
        **{name: getattr(report, name) for name in counts},
        "virtual_s": round(report.virtual_s, 3),
        "events": report.events,
        "trace": [{"at_s": round(at_s, 3), "what": line} for at_s, line in report.lines],
        "broken": None
        if broken is None
        else {
            "invariant": broken.invariant,
            "step": broken.step,
            "at_s": round(broken.at_s, 3),
            "detail": broken.detail,
            "again": f"{PROGRAM} {command_of(simulation)}",
        },
        "elapsed_s": round(report.elapsed_s, 3),
        "memory_mb": round(report.memory_mb, 1),
    }


def simulate_store(seed: SeedOption = 1, form: FormatOption = SimulationFormat.TEXT) -> None:
    """Simulate servers of the store engine, with clients and faults."""
    run, broken = StoreRun(seed), None
    try:
        run.run()
    except StoreRuleBrokenError as error:
        broken = str(error)
    if form is SimulationFormat.JSON:
        print_json(_store_document(run, broken))
    else:
        for line in run.world.trace:
            print(line)
        history = run.clients.history
        print(
            f"{len(history.operations)} operations of clients, {len(history.acknowledged)} acknowledged writes"
        )
        print(f"{len(run.world.metastore.results)} exchanges, {run.world.steps} steps")
        print("every rule held" if broken is None else "a rule is broken")
    if broken is not None:
        end_broken(f"seed {seed}: {broken}", f"store --seed {seed}")


def _store_document(run: StoreRun, broken: str | None) -> dict[str, object]:
    return {
        "seed": run.seed,
        "operations": len(run.clients.history.operations),
        "acknowledged_writes": len(run.clients.history.acknowledged),
        "exchanges": len(run.world.metastore.results),
        "steps": run.world.steps,
        "trace": run.world.trace,
        "broken": broken,
    }
