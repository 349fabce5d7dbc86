"""Texts without their secrets: those that are known here by value, and what looks like one. Pure."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

HIDDEN = "********"
SHORTEST = 4
"""A known secret of fewer characters is replaced only where its name is beside it: it would be everywhere."""

_WORDS = r"password|passwd|passphrase|secret|credential|token|api[_-]?key|private[_-]?key"
_NAMES = rf"(?<![\w-])[\w-]{{0,64}}?(?:{_WORDS})[\w-]{{0,64}}"
_QUOTED = r"'(?:[^']|'')*'?"
_DOUBLE = r"\\?\"(?:[^\"\\]|\\.)*\\?\"?"
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # A key that begins or ends outside of the text is one, too.
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S), HIDDEN),
    (re.compile(r"\A(?:[A-Za-z0-9+/=]+\s+)*-----END [A-Z ]*PRIVATE KEY-----"), HIDDEN),
    (re.compile(r"\bzk[tsl]_[A-Za-z0-9_-]+"), HIDDEN),
    (re.compile(r"\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"), HIDDEN),
    (re.compile(r"\$argon2\w*\$[^\s\"']+"), HIDDEN),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.I), rf"\1 {HIDDEN}"),
    (re.compile(r"(://[^\s/:@]*):[^\s/]+@"), rf"\1:{HIDDEN}@"),
    (re.compile(rf"\b(password|identified(?:\s+by)?)(\s+)(?:{_QUOTED}|{_DOUBLE})", re.I), rf"\1\2'{HIDDEN}'"),
    # In statements it may stand without quotes.
    (
        re.compile(
            r"\b(PASSWORD|IDENTIFIED(?:\s+BY)?)(\s+(?:TO\s+|FOR\s+\S+\s*=?\s*|=\s*)?)(?:'(?:[^']|'')*'?|[^\s;'\"]+)"
        ),
        rf"\1\2{HIDDEN}",
    ),
)
_NAMED = re.compile(
    rf"(?P<name>{_NAMES}|\b(?:set-)?cookie|\bauthorization)(?P<equals>\\?[\"']?\s*[=:]\s*)"
    rf"(?P<value>{_DOUBLE}|{_QUOTED}|[^\s\"',;&}}\[{{][^\s\"',;&}}]*)",
    re.I,
)
_HINT = re.compile(r"pass|secret|credential|token|key|cookie|authorization")
_QUOTE = re.compile(r"\\?[\"']")
_LITERAL = re.compile(_QUOTED, re.S)
SECRET_NAME = re.compile(rf"{_NAMES}|.*key", re.I)
"""Name of an environment variable whose value is secret."""
_NO_SECRET = re.compile(r".*(?:_file|_url|_claim|_tls_key|_https_key)", re.I)
_URL_PASSWORD = re.compile(r"://[^\s/:@]*:([^\s/]+)@")


class Scrubber:
    """``known``: secrets by value; also as they are in URLs, in JSON and in Base64."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        forms = {form for secret in known if len(secret) >= SHORTEST for form in _forms(secret)}
        # The longest first: one may be a part of another.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def clean(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        for pattern, shown in _RULES:
            text = pattern.sub(shown, text)
        # Most lines have none of the words, and to find that out is quick.
        return "".join(
            _NAMED.sub(_named, line) if _HINT.search(line.lower()) else line
            for line in text.splitlines(keepends=True)
        )


def without_literals(statement: str) -> str:
    """SQL with all of its strings hidden."""
    return _LITERAL.sub("'…'", statement)


def secrets_in(environment: Mapping[str, str]) -> set[str]:
    """Values of variables whose names say that they are secret, and passwords in URLs."""
    found = {value for name, value in environment.items() if value and is_secret(name)}
    for password in (match[1] for value in environment.values() for match in _URL_PASSWORD.finditer(value)):
        found |= {password, unquote(password)}
    return found


def is_secret(name: str) -> bool:
    """Check that the value of the variable ``name`` is a secret."""
    return SECRET_NAME.fullmatch(name) is not None and _NO_SECRET.fullmatch(name) is None


def _named(match: re.Match[str]) -> str:
    """Replacement for a match of ``_NAMED``: name and sign stay, and so do the quotes of the value; in JSON a
    value without quotes gets them."""
    quoted = _QUOTE.match(match["value"])
    quote_sign = quoted[0] if quoted else '"' if match["equals"].lstrip("\\").startswith('"') else ""
    return f"{match['name']}{match['equals']}{quote_sign}{HIDDEN}{quote_sign}"


def _forms(secret: str) -> set[str]:
    raw = secret.encode(errors="surrogateescape")
    encoded = base64.b64encode(raw).decode().rstrip("=")
    return {secret, quote(secret, safe="", errors="replace"), json.dumps(secret)[1:-1], encoded}
