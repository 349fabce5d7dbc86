"""Who asks: the name that comes with a request, and whether anybody has checked it.

A context variable, because between the edge (outermost) and the commit (innermost, in the worker thread) lie
engines that need not know of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum

NAME_MAX = 100


class Channel(Enum):
    """Which way a request came. CLI and console speak REST, and say so."""

    REST = "REST"
    CLI = "CLI"
    CONSOLE = "CONSOLE"
    SQL = "SQL"
    SYSTEM = "SYSTEM"


@dataclass(frozen=True, slots=True)
class Actor:
    """``verified``: a proxy that checks names has put this one into its header; else it is what the client
    says. ``address`` is where the request came from, as host."""

    name: str = ""
    verified: bool = False
    channel: Channel = Channel.SYSTEM
    address: str = ""

    def named(self, stated: str | None) -> Actor:
        """With the name that a request states; a verified one is not replaced."""
        if self.verified or not stated:
            return self
        return Actor(stated[:NAME_MAX], False, self.channel, self.address)


NOBODY = Actor()
_CURRENT: ContextVar[Actor] = ContextVar("actor", default=NOBODY)


def current_actor() -> Actor:
    """``NOBODY`` outside of requests."""
    return _CURRENT.get()


@contextmanager
def acting(actor: Actor) -> Iterator[None]:
    """What runs inside the block, in this task or in tasks that it begins, is done for ``actor``."""
    before = _CURRENT.set(actor)
    try:
        yield
    finally:
        _CURRENT.reset(before)
