"""``zonectl simulate``: the whole control plane in virtual time, from a seed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from app.cli.exits import CliError, ExitCode, UsageError
from app.cli.options import option
from app.cli.say import say_json
from catalog.core.zone import Strategy
from rebalance.simulation.run import AGENT_PARTITIONS_MAX, Simulation, SimulationReport
from rebalance.simulation.run import simulate as run_simulation


class SimulationFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


def simulate(
    context: typer.Context,
    seed: Annotated[int, option("--seed", "Seed of all random choices.", "S")] = 1,
    nodes: Annotated[int, option("--nodes", "Number of nodes at the start.", "N", min=3)] = 5,
    partitions: Annotated[
        int, option("--partitions", "Number of partitions of all zones together.", "P", min=1)
    ] = 8,
    events: Annotated[
        int,
        option("--events", "Number of ALTERs, joins, leaves, crashes and pauses.", "E", min=0),
    ] = 12,
    strategy: Annotated[
        Strategy, option("--strategy", "How a new target affects a move in progress.")
    ] = Strategy.QUEUE,
    cluster_moves: Annotated[
        int | None,
        option(
            "--cluster-moves",
            "Maximum number of concurrent moves; other limits and pauses come and go.",
            "N",
            min=1,
            default="no limits",
        ),
    ] = None,
    staying: Annotated[
        bool, option("--staying", "Repair no fault: nodes stay down, disks full, links cut.")
    ] = False,
    stealing: Annotated[
        bool,
        option("--stealing", "Simulate Voldemort's rebalancing; takes --seed and --format only."),
    ] = False,
    store: Annotated[
        bool,
        option("--store", "Simulate servers of the store engine; takes --seed and --format only."),
    ] = False,
    form: Annotated[SimulationFormat, option("--format", "Output format.")] = SimulationFormat.TEXT,
) -> int:
    """Run the control plane in virtual time, inject faults, and check invariants.

    Every invariant is checked after each step. Controllers, guarded writes and (up
    to 1,000 partitions) node agents are the real ones. Metastore, network, clock
    and replication groups are simulated, so that a run takes seconds, needs no
    server and is reproducible. Larger runs simulate nodes and groups as arrays.

    \b
    Examples:
      zonectl simulate --seed 7
      zonectl simulate --seed 7 --nodes 9 --partitions 200 --events 40
      zonectl simulate --seed 7 --partitions 24 --cluster-moves 2
      zonectl simulate --seed 2 --partitions 4 --events 8 --staying
      zonectl simulate --seed 1 --nodes 1000 --partitions 1000000 --events 10
      zonectl simulate --stealing --seed 7
      zonectl simulate --store --seed 7
      for s in $(seq 100); do zonectl simulate --seed $s >/dev/null || break; done

    With --staying two faults are permanent, with up to 1,000 partitions. Moves that
    cannot end because of them must name the cause, and are listed with it.

    The printed digest covers every write and every step: two runs with the same
    options print the same digest. A violated invariant is reported with its seed
    and step; the same command reproduces it.

    Exit codes: 0 all invariants held, 1 one was violated, 64 usage error, 130
    interrupted.
    """
    if stealing and store:
        raise UsageError("--stealing, --store: one of them")
    if store:
        _refuse_others(context, "--store")
        from app.cli.simulate_store import simulate_store

        return simulate_store(seed, as_json=form is SimulationFormat.JSON)
    if stealing:
        _refuse_others(context, "--stealing")
        from app.cli.simulate_stealing import simulate_stealing

        return simulate_stealing(seed, as_json=form is SimulationFormat.JSON)
    if staying and partitions > AGENT_PARTITIONS_MAX:
        raise UsageError(f"--staying: faults stay with at most {AGENT_PARTITIONS_MAX:,} partitions")
    simulation = Simulation(
        *(seed, nodes, partitions, events, strategy.value),
        cluster_moves=cluster_moves,
        staying=() if staying else None,
    )
    report = run_simulation(simulation)
    if form is SimulationFormat.JSON:
        say_json(_document(report), indent=2)
    else:
        _print_text(report)
    if report.broken is not None:
        raise CliError(ExitCode.FAILED, _broken(report))
    return ExitCode.OK


def _refuse_others(context: typer.Context, kind: str) -> None:
    """Raises UsageError: the seed alone draws what a run of that kind is about."""
    given = [
        f"--{name.replace('_', '-')}"
        for name in ("nodes", "partitions", "events", "strategy", "cluster_moves", "staying")
        if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
    ]
    if given:
        raise UsageError(f"{', '.join(given)}: {kind} takes --seed and --format only")


def command_of(simulation: Simulation) -> str:
    """The command line that shows the same run again."""
    cap = "" if simulation.cluster_moves is None else f" --cluster-moves {simulation.cluster_moves}"
    stays = "" if simulation.staying is None else " --staying"
    return (
        f"zonectl simulate --seed {simulation.seed} --nodes {simulation.nodes} "
        f"--partitions {simulation.partitions} --events {simulation.events} "
        f"--strategy {simulation.strategy}{cap}{stays}"
    )


def _broken(report: SimulationReport) -> str:
    broken = report.broken
    if broken is None:
        return ""
    return (
        f"seed {report.simulation.seed}, step {broken.step}, {broken.at_s:.3f} s: "
        f"broken invariant: {broken.invariant}\n{broken.detail}\n"
        f"to reproduce: {command_of(report.simulation)}"
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


def _document(report: SimulationReport) -> dict[str, Any]:
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
            "again": command_of(simulation),
        },
        "elapsed_s": round(report.elapsed_s, 3),
        "memory_mb": round(report.memory_mb, 1),
    }
