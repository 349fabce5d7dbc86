"""A type's name as the SQL protocol spells it, ``{"rawType", "arguments"}``: drivers decode values by it."""

from __future__ import annotations

import re
from typing import Any

Json = dict[str, Any]

VARCHAR_LENGTH_MAX = 2**31 - 1
_TOKEN = re.compile(r'"(?:[^"]|"")*"|[(),]|[^\s(),"]+')
_NESTED = frozenset({"array", "map", "row"})


def type_signature(name: str) -> Json:
    """``name`` is a type of ours: ``decimal(38,0)``, ``row("a b" date, map(varchar, timestamp(6)))``."""
    return _SignatureReader(_TOKEN.findall(name)).read()


class _SignatureReader:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._next = 0

    def read(self) -> Json:
        """``timestamp(6) with time zone`` has its arguments in the middle of its name."""
        words = [self._take()]
        while self._peek() not in ("", "(", ")", ","):
            words.append(self._take())
        arguments: list[Json] = []
        if self._peek() == "(":
            self._take()
            while self._peek() != ")":
                arguments.append(self._argument(words[0]))
                if self._peek() == ",":
                    self._take()
            self._take()
            while self._peek() not in ("", "(", ")", ","):
                words.append(self._take())
        elif words == ["varchar"]:
            arguments = [{"kind": "LONG", "value": VARCHAR_LENGTH_MAX}]
        return {"rawType": " ".join(words), "arguments": arguments}

    def _argument(self, outer: str) -> Json:
        if outer not in _NESTED:
            return {"kind": "LONG", "value": int(self._take())}
        if outer != "row":
            return {"kind": "TYPE", "value": self.read()}
        field = self._field()
        value: Json = {"typeSignature": self.read()}
        if field is not None:
            value["fieldName"] = {"name": field}
        return {"kind": "NAMED_TYPE", "value": value}

    def _field(self) -> str | None:
        """A field's name, if it has one: then another word follows, which is not the rest of a type's name."""
        following = self._tokens[self._next + 1]
        if self._peek().startswith('"'):
            return self._take()[1:-1].replace('""', '"')
        is_name = following not in ("(", ")", ",") and self._peek() != "interval"
        return self._take() if is_name else None

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        self._next += 1
        return self._tokens[self._next - 1]
