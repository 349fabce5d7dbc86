"""Which of the two rendezvous kernels answers, whatever the size of the question."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from rebalance.kernels import rendezvous


@contextmanager
def only(kernel: str) -> Iterator[None]:
    """``numpy`` or ``compiled``."""
    with mock.patch.object(rendezvous, "COMPILED_KEYS_MIN", 0 if kernel == "compiled" else 1 << 62):
        yield
