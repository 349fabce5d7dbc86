"""``catalog.core.zone_options.NodeFilters`` in JSONPath: which nodes a NODES FILTER selects.

The language is loaded with the first filter that needs it: `$..*`, every node, needs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from catalog.core.zone import EVERY_NODE, Node
from catalog.core.zone_options import FilterError

if TYPE_CHECKING:
    from jsonpath import JSONPath
    from jsonpath.filter import BaseExpression

FILTER_CHARS_MAX = 1000
CACHED_FILTERS_MAX = 1024
LONG_MAX = 2**63 - 1

_INTEGER = re.compile("[+-]?[0-9]{1,19}")


class JsonPathFilters:
    """Evaluates and analyses filters; compiled ones are kept. Without state otherwise, so share one."""

    def matches(self, expression: str, node: Node) -> bool:
        """The filter's path selects anything in the node's attributes. Raises FilterError."""
        if expression.strip() == EVERY_NODE:
            return True
        from catalog.filters.json_path_dialect import SuppressedError

        path = _compiled(expression)
        try:
            attributes = {name: _attribute(value) for name, value in node.attributes}
            return next(iter(path.finditer(attributes)), None) is not None
        except SuppressedError:
            return False

    def negated_attributes(self, expression: str) -> tuple[str, ...]:
        if expression.strip() == EVERY_NODE:
            return ()
        from catalog.filters.json_path_dialect import MapFilter

        names: set[str] = set()
        for segment in _compiled(expression).segments:
            for selector in segment.selectors:
                if isinstance(selector, MapFilter):
                    names.update(_negated(selector.expression.expression, negated=False))
        return tuple(sorted(names))


JSON_PATH = JsonPathFilters()


def _attribute(value: str) -> str | int:
    """A text that reads as a 64-bit integer counts as one."""
    if _INTEGER.fullmatch(value) and -LONG_MAX - 1 <= int(value) <= LONG_MAX:
        return int(value)
    return value


@lru_cache(maxsize=CACHED_FILTERS_MAX)
def _compiled(expression: str) -> JSONPath:
    """A python-jsonpath path. Raises FilterError; the same text is the same error each time."""
    from jsonpath import CompoundJSONPath
    from jsonpath.exceptions import JSONPathError

    from catalog.filters.json_path_dialect import FilterEnvironment, MapFilter

    path = expression.strip()
    if not path:
        raise FilterError("it is blank")
    if len(path) > FILTER_CHARS_MAX:
        raise FilterError(f"it has {len(path)} characters, at most {FILTER_CHARS_MAX} are allowed")
    try:
        compiled = FilterEnvironment().compile(_rooted(path))
    except (JSONPathError, RecursionError) as error:
        raise FilterError(_reason(error)) from error
    if isinstance(compiled, CompoundJSONPath):
        raise FilterError("it is one path")
    for segment in compiled.segments:
        if len(segment.selectors) > 1 and any(
            isinstance(selector, MapFilter) for selector in segment.selectors
        ):
            raise FilterError("a predicate stands alone in its brackets")
    return compiled


def _rooted(path: str) -> str:
    """Paths may be written without the root: ``region`` and ``[?(...)]`` are below it, and @ is it."""
    if path.startswith("$"):
        return path
    if path.startswith("@"):
        return "$" + path[1:]
    return "$" + path if path.startswith("[") else "$." + path


def _reason(error: Exception) -> str:
    reason = str(error.args[0]) if error.args else "it cannot be read"
    token = getattr(error, "token", None)
    return f"{reason} (at character {token.index + 1})" if token is not None and token.index >= 0 else reason


def _negated(expression: BaseExpression, *, negated: bool) -> Iterator[str]:
    from jsonpath.filter import InfixExpression, PrefixExpression

    from catalog.filters.json_path_dialect import LOGICAL, NEGATIVE

    if isinstance(expression, PrefixExpression):
        yield from _negated(expression.right, negated=not negated)
    elif isinstance(expression, InfixExpression):
        operands = (expression.left, expression.right)
        if expression.operator in LOGICAL:
            for operand in operands:
                yield from _negated(operand, negated=negated)
        elif (expression.operator in NEGATIVE) != negated:
            for operand in operands:
                yield from _first_names(operand)


def _first_names(operand: BaseExpression) -> Iterator[str]:
    """The attribute that a path as ``@.region`` reads."""
    from jsonpath.filter import FilterQuery
    from jsonpath.selectors import NameSelector

    if isinstance(operand, FilterQuery) and operand.path.segments:
        for selector in operand.path.segments[0].selectors:
            if isinstance(selector, NameSelector):
                yield selector.name
