"""Updates and transactions as an exchange sees them: what is mapped on which version, and what is still
open."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from rebalance.core.loss_policy import Access
from rebalance.core.topology_version import TopologyVersion
from rebalance.exchange.simulation.write_ahead import PartitionKey


class ExchangeStage(Enum):
    NEW = "NEW"
    LOCKED = "LOCKED"  # it holds its node's topology lock for reading
    WAITING = "WAITING"  # for the topology future, without holding anything
    MAPPED = "MAPPED"  # on a version; a future of its own on the node that began it
    ENLISTED = "ENLISTED"  # the primary has a future of it too; a transaction may stay here
    COMMITTING = "COMMITTING"  # the primary has applied it, commits to backups are on their way
    DONE = "DONE"
    REFUSED = "REFUSED"
    ROLLED_BACK = "ROLLED_BACK"


ENDED = (ExchangeStage.DONE, ExchangeStage.REFUSED, ExchangeStage.ROLLED_BACK)


class SyncMode(Enum):
    """When the node that began an update is told: after all commits, or after the primary's."""

    FULL_SYNC = "FULL_SYNC"
    PRIMARY_SYNC = "PRIMARY_SYNC"


@dataclass(slots=True)
class ExchangeOperation:
    """``near`` began it. ``held_open``: a user holds the transaction and does nothing. ``versions``: every
    version that it was mapped on, the last one counts."""

    number: int
    near: str
    partition: PartitionKey
    access: Access = Access.WRITE
    mode: SyncMode = SyncMode.FULL_SYNC
    held_open: bool = False
    stage: ExchangeStage = ExchangeStage.NEW
    primary: str = ""
    versions: list[TopologyVersion] = field(default_factory=list)
    basis: TopologyVersion | None = None
    """The exchange whose assignments named the primary."""
    update: int = 0
    losses: int = 0
    reason: str = ""
    commits: set[str] = field(default_factory=set)
    """Backups whose commit is on its way."""

    @property
    def version(self) -> TopologyVersion | None:
        return self.versions[-1] if self.versions else None

    def is_open_on(self, node: str, is_server: bool) -> bool:
        """Whether ``node`` has a future of it: as where it began (servers only release those), as the primary,
        or as a backup with a commit on its way (PME-043..045)."""
        if node in self.commits:
            return True
        if self.stage in (ExchangeStage.MAPPED, ExchangeStage.ENLISTED):
            return (is_server and node == self.near) or (
                self.stage is ExchangeStage.ENLISTED and node == self.primary
            )
        if self.stage is ExchangeStage.COMMITTING and self.mode is SyncMode.FULL_SYNC:
            return node in (self.primary, self.near) and is_server
        return False
