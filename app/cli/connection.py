"""How commands ask the API: one connection, a refusal and the answer in the form that was asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

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
from app.cli.output import say, say_json

if TYPE_CHECKING:
    from app.cli.client import ApiClient
    from app.cli.output import Columns

P = ParamSpec("P")
Command = Callable[Concatenate["Api", P], int]


@dataclass(frozen=True, slots=True)
class Api:
    """Where a command asks, and the form in which it prints."""

    url: str | None
    data_dir: Path
    form: OutputFormat

    @property
    def is_table(self) -> bool:
        return self.form is OutputFormat.TABLE

    @contextmanager
    def client(self, reason: str = "") -> Iterator[ApiClient]:
        """Closed at the end. A ProblemError in the block becomes a CliError that shows it as ``form`` says."""
        from app.cli.client import ApiClient
        from app.cli.problems import ProblemError, render_problem

        with ApiClient(find_address(self.url, self.data_dir), reason) as client:
            try:
                yield client
            except ProblemError as error:
                raise CliError(error.exit_code, render_problem(error.problem, self.form)) from error

    def show(self, objects: Sequence[Mapping[str, Any]], columns: Columns, title: str = "") -> None:
        """A row an object; ``columns`` say how a table shows them."""
        from app.cli.output import print_objects, print_table

        if self.is_table:
            print_table(objects, columns, title)
        else:
            print_objects(objects, self.form)

    def show_one(self, body: object, *lines: str) -> None:
        """One object: as JSON, for people as ``lines``."""
        if self.is_table:
            for line in lines:
                say(line)
        else:
            say_json(body, indent=2 if self.form is OutputFormat.JSON else None)


def client_command(function: Command[P], *, one: bool = False) -> Callable[..., int]:
    """The command of a function: its options, then those that say where to ask and how to print.

    ``one``: it prints one object, so that there is no csv.
    """
    signature = inspect.signature(function, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "api"]
    format_option = (ObjectFormatOption, ObjectFormat.TABLE) if one else (FormatOption, OutputFormat.TABLE)
    shared: dict[str, tuple[Any, Any]] = {
        "form": format_option,
        "url": (UrlOption, None),
        "data_dir": (DataDirOption, DEFAULT_DATA_DIR),
    }

    run: Callable[..., int] = function

    @wraps(function)
    def command(
        *,
        form: ObjectFormat | OutputFormat,
        url: str | None,
        data_dir: Path,
        **given: Any,
    ) -> int:
        return run(Api(url, data_dir, OutputFormat(form.value)), **given)

    keyword = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    added = [keyword(name, annotation=note, default=value) for name, (note, value) in shared.items()]
    command.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]  # read by typer
    return command


def object_command(function: Command[P]) -> Callable[..., int]:
    """As ``client_command``, of a command that prints one object."""
    return client_command(function, one=True)
