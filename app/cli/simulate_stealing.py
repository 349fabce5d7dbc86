"""What ``zonectl simulate --stealing`` does: one rebalancing of Voldemort's kind, from a seed."""

from __future__ import annotations

import json

from app.cli.exits import CliError, ExitCode
from rebalance.stealing.simulation.controller import Result
from rebalance.stealing.simulation.steal_run import StealRun
from rebalance.stealing.simulation.steal_workload import History
from rebalance.stealing.simulation.steal_world import World


def simulate_stealing(seed: int, *, as_json: bool) -> int:
    """Raises CliError for a broken rule, after what happened was printed."""
    run, broken = StealRun(seed), None
    try:
        run.run()
    except AssertionError as error:
        broken = str(error)
    results = [_outcome(result) for result in run.results]
    if as_json:
        print(
            json.dumps(_document(seed, run.world, run.history, results, broken), ensure_ascii=False, indent=2)
        )
    else:
        for line in run.world.trace:
            print(line)
        print(f"controllers: {'; '.join(results) or 'none'}")
        print(f"{len(run.history.requests)} requests of clients, {len(run.history.failed)} failed")
        print("every rule held" if broken is None else "a rule is broken")
    if broken is not None:
        again = f"zonectl simulate --stealing --seed {seed}"
        raise CliError(ExitCode.FAILED, f"seed {seed}: {broken}\nto reproduce: {again}")
    return ExitCode.OK


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
