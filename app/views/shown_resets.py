"""Outcome that a dry run of a reset has shown, in the form in which the reset itself takes it: for clients of
the REST API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SHOWN = ("survivor", "empty", "possibly_lost_entries")


def shown_of(planned: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Outcomes of ``planned``, the API's partitions of a dry run, without the refused ones. Partitions with the
    same outcome stand together: a zone may have many."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for reset in planned:
        if not reset["refusal"]:
            groups.setdefault(tuple(reset[name] for name in SHOWN), []).append(reset["partition"])
    return [
        dict(zip(SHOWN, values, strict=True)) | {"partitions": numbers} for values, numbers in groups.items()
    ]
