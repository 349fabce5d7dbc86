"""``python -m simulator stealing``: one rebalancing of Voldemort's kind, from a seed."""

from __future__ import annotations

from simulator.commands import FormatOption, SeedOption, SimulationFormat, end_broken, print_json
from simulator.stealing.simulation.controller import Result
from simulator.stealing.simulation.steal_run import StealRun
from simulator.stealing.simulation.steal_workload import History
from simulator.stealing.simulation.steal_world import World


def simulate_stealing(seed: SeedOption = 1, form: FormatOption = SimulationFormat.TEXT) -> None:
    """Simulate Voldemort's rebalancing with donors and stealers."""
    run, broken = StealRun(seed), None
    try:
        run.run()
    except AssertionError as error:
        broken = str(error)
    results = [_outcome(result) for result in run.results]
    if form is SimulationFormat.JSON:
        print_json(_document(seed, run.world, run.history, results, broken))
    else:
        for line in run.world.trace:
            print(line)
        print(f"controllers: {'; '.join(results) or 'none'}")
        print(f"{len(run.history.requests)} requests of clients, {len(run.history.failed)} failed")
        print("every rule held" if broken is None else "a rule is broken")
    if broken is not None:
        end_broken(f"seed {seed}: {broken}", f"stealing --seed {seed}")


def _outcome(result: Result) -> str:
    refusals = ", ".join(refusal.code.value for refusal in result.refusals)
    return " ".join(part for part in (result.outcome.value, refusals, result.error) if part)


def _document(
    seed: int, world: World, history: History, results: list[str], broken: str | None
) -> dict[str, object]:
    return {
        "seed": seed,
        "results": results,
        "requests": len(history.requests),
        "failed": history.failed,
        "trace": [
            {"at_s": round(entry.at_s, 6), "node": entry.node, "what": entry.kind, "detail": entry.detail}
            for entry in world.trace
        ],
        "broken": broken,
    }
