"""A request's headers, read once: every request passes the edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from starlette.types import Scope

SQL_USER = "X-Trino-User"
SQL_ROLE = "X-Trino-Role"


@dataclass(frozen=True, slots=True)
class Fields:
    """``lines``: values by lower-cased name, in their order. ``size`` counts the bytes of all."""

    lines: dict[bytes, list[bytes]]
    size: int

    @classmethod
    def of(cls, scope: Scope) -> Self:
        lines: dict[bytes, list[bytes]] = {}
        size = 0
        for name, value in scope["headers"]:
            size += len(name) + len(value)
            lines.setdefault(name, []).append(value)
        return cls(lines, size)

    def all(self, name: bytes) -> list[str]:
        values = self.lines.get(name)
        return [] if values is None else [value.decode("latin-1") for value in values]

    def first(self, name: bytes, otherwise: str = "") -> str:
        values = self.lines.get(name)
        return otherwise if values is None else values[0].decode("latin-1")

    @property
    def has_body(self) -> bool:
        return self.lines.get(b"content-length", [b"0"])[0] != b"0" or b"transfer-encoding" in self.lines
