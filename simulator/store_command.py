"""``python -m simulator store``: store servers under faults, from a seed."""

from __future__ import annotations

from simulator.output import FormatOption, SeedOption, SimulationFormat, end_broken, print_json
from simulator.store.store_history import StoreRuleBrokenError
from simulator.store.store_run import StoreRun


def simulate_store(seed: SeedOption = 1, form: FormatOption = SimulationFormat.TEXT) -> None:
    """Simulate servers of the store engine, with clients and faults."""
    run, broken = StoreRun(seed), None
    try:
        run.run()
    except StoreRuleBrokenError as error:
        broken = str(error)
    if form is SimulationFormat.JSON:
        print_json(_document(run, broken))
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
