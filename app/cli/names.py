"""Zone names on the command line, which follow SQL, as those in addresses do."""

from __future__ import annotations

from app.cli.exits import UsageError
from catalog.core.names import written


def fold_name(text: str) -> str:
    """The name as it is sent: ``orders`` as ORDERS, ``"Orders"`` as it is, with ``""`` for a quote in it."""
    if text.startswith('"') and text.endswith('"') and len(text) > 2:
        inner = text[1:-1]
        if '"' in inner.replace('""', ""):
            raise UsageError(f"zone name {text}: a double quote inside a quoted name is doubled")
        return written(inner.replace('""', '"'))
    if not text.strip() or '"' in text:
        raise UsageError(f"zone name {text!r} is neither a plain name nor a name in double quotes")
    return text.upper()
