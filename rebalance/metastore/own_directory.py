"""Check, before a process uses a directory, that it is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from uuid import uuid4

import structlog

from rebalance.core.causes.cause import Cause
from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.txn import Put, Txn, absent
from rebalance.hosting.directory_owner import (
    DirectoryOwner,
    ForeignDirectoryError,
    check_owner,
    name_directories,
    owner_of,
)
from rebalance.ports.metastore import Metastore, MetastoreError

log = structlog.get_logger(__name__)

AGAIN_S = 5.0


async def installation_of(metastore: Metastore, keyspace: Keyspace, known: str = "") -> str:
    """The installation's id. A metastore that has none, as a new one, gets ``known``, or else a random one.
    Raises MetastoreError."""
    while (item := await metastore.get(keyspace.installation)) is None:
        value = (known or uuid4().hex[:12]).encode()
        await metastore.commit(Txn((absent(keyspace.installation),), (Put(keyspace.installation, value),)))
    return item.value.decode(errors="replace")


class OwnDirectory:
    """``directories``: of one process, as far as they are there; the first one's name is what counts."""

    def __init__(
        self,
        node: str,
        directories: Callable[[], Iterable[Path]],
        metastore: Metastore,
        keyspace: Keyspace,
    ) -> None:
        self._node = node
        self._directories = directories
        self._metastore = metastore
        self._keyspace = keyspace

    async def name(self) -> None:
        """Name the directories, until all that are there have a name, which a metastore that was silent at the
        start gives later. Raises ForeignDirectoryError if they turn out to be of another installation."""
        while True:
            try:
                return await self._claim()
            except (MetastoreError, OSError) as error:
                log.info("the data directory has no name yet", error=str(error))
            await asyncio.sleep(AGAIN_S)

    async def why_foreign(self) -> str:
        """A cause; empty: they are this node's own, as far as anybody can tell now. Those without a name get
        it, where the metastore answers."""
        try:
            await asyncio.to_thread(check_owner, self._directories(), DirectoryOwner(self._node))
            await self._claim()
        except ForeignDirectoryError as error:
            return Cause.FOREIGN_DIRECTORY.text(str(error))
        except (MetastoreError, OSError) as error:
            log.info("the data directory has no name yet", error=str(error))
        return ""

    async def _claim(self) -> None:
        """Raises ForeignDirectoryError, MetastoreError and OSError."""
        directories = tuple(self._directories())
        known = owner_of(directories[0]) if directories else None
        installation = await installation_of(
            self._metastore, self._keyspace, known.installation if known is not None else ""
        )
        owner = DirectoryOwner(self._node, installation)
        await asyncio.to_thread(check_owner, directories, owner)
        await asyncio.to_thread(name_directories, directories, owner)
