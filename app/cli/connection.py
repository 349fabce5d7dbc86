"""Connection of commands to the API; answers and refusals are printed in the format that was requested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.address import find_address
from app.cli.exits import CliError
from app.cli.options import (
    DEFAULT_DATA_DIR,
    DataDirOption,
    FormatOption,
    ObjectFormat,
    ObjectFormatOption,
    OutputFormat,
    UrlOption,
)
from app.cli.output import Columns, print_objects, print_table, say, say_json

if TYPE_CHECKING:
    from app.cli.client import ApiClient


class Api:
    """Server that a command asks, and the format in which it prints: the options after a command's own."""

    form: OutputFormat | ObjectFormat
    url: str | None
    data_dir: Path

    @property
    def output(self) -> OutputFormat:
        return OutputFormat(self.form.value)

    @property
    def is_table(self) -> bool:
        return self.output is OutputFormat.TABLE

    @contextmanager
    def client(self, reason: str = "") -> Iterator[ApiClient]:
        """A client, closed at the end. A ProblemError in the block becomes a CliError that shows it as ``form``
        says."""
        from app.cli.client import ApiClient
        from app.cli.problems import ProblemError, render_problem

        with ApiClient(find_address(self.url, self.data_dir), reason) as client:
            try:
                yield client
            except ProblemError as error:
                raise CliError(error.exit_code, render_problem(error.problem, self.output)) from error

    def show(self, objects: Sequence[Mapping[str, Any]], columns: Columns, title: str = "") -> None:
        """Print a row for each object; ``columns`` say how a table shows them."""
        if self.is_table:
            print_table(objects, columns, title)
        else:
            print_objects(objects, self.output)

    def show_one(self, body: object, *lines: str) -> None:
        """Print one object: as JSON, or for people as ``lines``."""
        if self.is_table:
            for line in lines:
                say(line)
        else:
            say_json(body, indent=2 if self.output is OutputFormat.JSON else None)


@dataclass(frozen=True, slots=True)
class RowsApi(Api):
    """Options of a command that prints rows."""

    form: FormatOption = OutputFormat.TABLE
    url: UrlOption = None
    data_dir: DataDirOption = DEFAULT_DATA_DIR


@dataclass(frozen=True, slots=True)
class ObjectApi(Api):
    """Options of a command that prints one object, and so has no csv."""

    form: ObjectFormatOption = ObjectFormat.TABLE
    url: UrlOption = None
    data_dir: DataDirOption = DEFAULT_DATA_DIR
