"""What ``zonectl simulate`` does once its options are read."""

from __future__ import annotations

from typing import Any

from app.cli.exits import CliError, ExitCode
from app.cli.say import say_json
from rebalance.simulation.run import Simulation, SimulationReport, simulate


def simulate_and_print(simulation: Simulation, *, as_json: bool) -> int:
    """Raises CliError for a broken invariant, after what happened was printed."""
    report = simulate(simulation)
    if as_json:
        say_json(_document(report), indent=2)
    else:
        _print_text(report)
    if report.broken is not None:
        raise CliError(ExitCode.FAILED, _broken(report))
    return ExitCode.OK


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
        f"to see it again: {command_of(report.simulation)}"
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
    return {
        "seed": simulation.seed,
        "nodes": simulation.nodes,
        "partitions": simulation.partitions,
        "strategy": simulation.strategy,
        "cluster_moves": simulation.cluster_moves,
        "bulk": simulation.is_bulk,
        "staying": simulation.staying is not None,
        "held": report.held,
        "digest": report.digest,
        "steps": report.steps,
        "switches": report.switches,
        "operations_done": report.operations_done,
        "moves_begun": report.moves_begun,
        "revision": report.revision,
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
