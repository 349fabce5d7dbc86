"""What an installation may show of itself after a cut's end: within ``SETTLED_S`` all is well or names its
cause, and what was named is well within ``CONVERGENCE_S``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SETTLED_S = 30.0
"""Within so long after the cut's end everything is at its target, or names why it is not."""
CONVERGENCE_S = 180.0
"""For what was named."""
READINESS = "the server"


@dataclass(frozen=True, slots=True)
class Look:
    """``issues``: place -> cause of what is not well, empty where none is shown; None: the server does not
    answer. ``serves``: every partition took a put."""

    issues: Mapping[str, str] | None
    serves: bool = False


@dataclass(slots=True)
class Judgement:
    """Of one case. ``named``: the causes that were shown when ``SETTLED_S`` were over."""

    named: tuple[str, ...] = ()

    def is_well(self, look: Look, took_s: float) -> bool:
        """``took_s``: since the cut's end. Raises AssertionError, with what was shown, when the time is over
        and something is not well and has no name, or was named and is not well yet."""
        if look.issues is not None and not look.issues and look.serves:
            return True
        if took_s > SETTLED_S and not self.named:
            assert look.issues is not None, f"{took_s:.0f} s after the cut: the server does not answer"
            assert look.issues, f"{took_s:.0f} s after the cut: shown as done, and takes no put"
            nameless = [place for place, cause in look.issues.items() if not cause]
            assert not nameless, f"{took_s:.0f} s after the cut: no cause is shown for {', '.join(nameless)}"
            self.named = tuple(f"{place}: {cause}" for place, cause in look.issues.items())
        assert took_s < CONVERGENCE_S, f"{took_s:.0f} s after the cut: {look.issues}"
        return False


def issues(readiness: str, partitions: Iterable[Mapping[str, Any]], wanted: frozenset[str]) -> dict[str, str]:
    """``readiness``: why the server says that the installation is not whole; empty: it is. ``partitions``: as
    the API shows them; ``wanted``: their voters. A partition that is not well has to name its own cause,
    whatever the server says of itself; the server alone may lack a node of no partition."""
    causes = {
        f"partition {each['partition']}": str(each["status"]["cause"])
        for each in partitions
        if each["status"]["state"] != "DONE" or frozenset(each["stable"]["peers"]) != wanted
    }
    return {READINESS: readiness, **causes} if readiness else causes
