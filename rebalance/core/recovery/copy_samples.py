"""Sample keys of a partition, and whether its copies agree on them (VOL-082, VOL-083).

Which keys are looked at follows from the seed and from the keys alone, so the same ones are found before and
after a move, on whichever copy, in whichever order they are listed.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Values = Mapping[str, bytes | None]
"""A copy's value of each key that it was asked for; None: it has none."""


@dataclass(frozen=True, slots=True)
class CopyVerdict:
    """``lacking``: keys that the copy has not and should; ``different``: its value is another one, or it has a
    key that it should not have."""

    lacking: tuple[str, ...] = ()
    different: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        return not self.lacking and not self.different


def chosen(keys: Iterable[str], seed: int, count: int) -> tuple[str, ...]:
    """``count`` of the distinct ``keys``, in their order."""
    return tuple(sorted(heapq.nsmallest(count, set(keys), key=lambda key: (_draw(seed, key), key))))


def _draw(seed: int, key: str) -> bytes:
    return hashlib.sha256(f"{seed}/{key}".encode(errors="surrogatepass")).digest()


def expected(copies: Sequence[Values], key: str, *, is_known: bool) -> bytes | None:
    """Value that most copies have; of as many the first in ``copies``. ``is_known``: the key was there once, so
    it must be now, and None is no answer as long as any copy has it."""
    values = [copy.get(key) for copy in copies]
    counts = Counter(value for value in values if value is not None or not is_known)
    return max(counts, key=lambda value: (counts[value], -values.index(value)), default=None)


def judge(copies: Mapping[str, Values], keys: Sequence[str], *, are_known: bool) -> dict[str, CopyVerdict]:
    """Each copy by name. ``are_known``: the keys were saved earlier; what no copy has is lost everywhere."""
    lacking: dict[str, list[str]] = {name: [] for name in copies}
    different: dict[str, list[str]] = {name: [] for name in copies}
    for key in keys:
        expected_value = expected(tuple(copies.values()), key, is_known=are_known)
        for name, values in copies.items():
            value = values.get(key)
            if value is None and (expected_value is not None or are_known):
                lacking[name].append(key)
            elif value != expected_value:
                different[name].append(key)
    return {name: CopyVerdict(tuple(lacking[name]), tuple(different[name])) for name in copies}


def digest_of(value: bytes | None) -> str | None:
    """Enough to tell values apart in a file; None: there is none."""
    return None if value is None else hashlib.sha256(value).hexdigest()[:16]
