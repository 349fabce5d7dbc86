"""Marks of a field: what its schema says beside its type. pydantic calls these methods by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any


class About:
    """``Annotated[int, About("seconds since it began")]``."""

    def __init__(self, text: str = "", **schema: Any) -> None:
        self._schema = {"description": text, **schema} if text else schema

    def __get_pydantic_json_schema__(
        self, core: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        return handler(core) | self._schema


class OneOf:
    """``Annotated[str, OneOf(Stage)]``: the values of an enum of a core, and ``more``; without ``less``."""

    def __init__(self, kind: Iterable[Enum], *more: str, less: Enum | None = None) -> None:
        self._values = [*(member.value for member in kind if member is not less), *more]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        return {"type": "literal", "expected": self._values}
