"""How most commands ask the API: one connection, and a refusal in the form that was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.cli.address import find_address
from app.cli.client import ApiClient, ProblemError
from app.cli.exits import CliError
from app.cli.options import OutputFormat
from app.cli.problems import render_problem


@contextmanager
def connected(url: str | None, data_dir: Path, form: OutputFormat, reason: str = "") -> Iterator[ApiClient]:
    """Closed at the end. A ProblemError in the block becomes a CliError that shows it as ``form`` says."""
    with ApiClient(find_address(url, data_dir), reason) as client:
        try:
            yield client
        except ProblemError as error:
            raise CliError(error.exit_code, render_problem(error.problem, form)) from error
