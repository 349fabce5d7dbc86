"""Calls of the metastore in a request: what it says when it does not answer is a problem of ours."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from catalog.core.errors import ErrorKind, StoreError
from rebalance.ports.metastore import ContendedError, MetastoreError, MetastoreUnavailableError

T = TypeVar("T")


async def answered(call: Awaitable[T]) -> T:
    """Raises StoreError (OUTCOME_UNKNOWN, METASTORE_UNAVAILABLE)."""
    try:
        return await call
    except MetastoreUnavailableError as error:
        kind = ErrorKind.OUTCOME_UNKNOWN if error.outcome_unknown else ErrorKind.METASTORE_UNAVAILABLE
        raise StoreError(kind, f"etcd does not answer: {error}") from error
    except ContendedError as error:
        raise StoreError(ErrorKind.METASTORE_UNAVAILABLE, f"{error}; try again") from error
    except MetastoreError as error:
        raise StoreError(ErrorKind.METASTORE_UNAVAILABLE, f"etcd does not answer: {error}") from error
