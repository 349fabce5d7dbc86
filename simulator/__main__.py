"""``python -m simulator``: one run from a seed."""

from __future__ import annotations

import typer

from simulator.commands import simulate_control, simulate_store
from simulator.stealing_command import simulate_stealing

app = typer.Typer(
    help="Run a protocol in virtual time, inject faults, and check invariants.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("control")(simulate_control)
app.command("store")(simulate_store)
app.command("stealing")(simulate_stealing)

if __name__ == "__main__":
    app(prog_name="python -m simulator")
