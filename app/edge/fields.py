"""A request's headers, read once: every request passes the edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from starlette.types import Scope

SQL_USER = "X-Trino-User"


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
        found = self.lines.get(name)
        return [] if found is None else [each.decode("latin-1") for each in found]

    def first(self, name: bytes, otherwise: str = "") -> str:
        found = self.lines.get(name)
        return otherwise if found is None else found[0].decode("latin-1")

    @property
    def has_body(self) -> bool:
        return self.lines.get(b"content-length", [b"0"])[0] != b"0" or b"transfer-encoding" in self.lines
