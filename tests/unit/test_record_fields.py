"""Fields of each stored record. One that gains a field is written otherwise than before, so the change that
adds it says here from which release level on."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import app.core
import catalog.core
import rebalance.core
import rebalance.exchange.core
import rebalance.store.core
from catalog.core.codec import Record
from catalog.core.level import LEVEL

FILE = Path(__file__).parents[1] / "data" / "record_fields.tsv"
PACKAGES = (app.core, catalog.core, rebalance.core, rebalance.exchange.core, rebalance.store.core)


def _classes(above: type[Record]) -> Iterator[type[Record]]:
    for cls in above.__subclasses__():
        # A dataclass with slots is made anew; the one without a codec of its own is the first making.
        if cls.__module__.split(".")[0] in ("app", "catalog", "rebalance"):
            yield cls
        yield from _classes(cls)


def written() -> dict[str, str]:
    """Fields of each record in the order of their names, by the record's name."""
    for package in PACKAGES:
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    return {
        cls.__name__: " ".join(sorted(cls.codec.names))
        for cls in _classes(Record)
        if getattr(cls, "codec", None) is not None
    }


def test_a_record_that_gains_or_loses_a_field_says_from_which_level_on() -> None:
    """The ``level`` of a row that is changed is the first at which the new field may be written: a build of the
    level before passes over what it does not know, and must lose nothing by that."""
    rows = [line.split("\t") for line in FILE.read_text().splitlines()]
    assert rows[0] == ["record", "level", "fields"]
    assert {record: fields for record, _, fields in rows[1:]} == written()
    assert {int(level) for _, level, _ in rows[1:]} <= set(range(LEVEL + 1))
    assert [record for record, *_ in rows[1:]] == sorted(written())
