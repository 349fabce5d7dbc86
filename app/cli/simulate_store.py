"""What ``zonectl simulate --store`` does: store servers under faults, from a seed."""

from __future__ import annotations

import json

from app.cli.exits import CliError, ExitCode
from rebalance.store.simulation.store_history import StoreRuleBrokenError
from rebalance.store.simulation.store_run import StoreRun


def simulate_store(seed: int, *, as_json: bool) -> int:
    """Raises CliError for a broken rule, after what happened was printed."""
    run, broken = StoreRun(seed), None
    try:
        run.run()
    except StoreRuleBrokenError as error:
        broken = str(error)
    if as_json:
        print(json.dumps(_document(run, broken), ensure_ascii=False, indent=2))
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
        again = f"zonectl simulate --store --seed {seed}"
        raise CliError(ExitCode.FAILED, f"seed {seed}: {broken}\nto reproduce: {again}")
    return ExitCode.OK


def _document(run: StoreRun, broken: str | None) -> dict[str, object]:
    return {
        "seed": run.seed,
        "operations": len(run.clients.history.operations),
        "acknowledged_writes": len(run.clients.history.acknowledged),
        "exchanges": len(run.world.metastore.results),
        "steps": run.world.steps,
        "trace": run.world.trace,
        "broken": broken,
    }
