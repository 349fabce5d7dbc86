"""Resources that the duties of one node share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rebalance.core.keys import Keyspace
from rebalance.nodes.partition_view import Mirrors
from rebalance.ports.groups import GroupHost
from rebalance.ports.measures import NO_MEASURES, Measures
from rebalance.ports.metastore import Metastore


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The node's name, what its duties read and write, and the host of its members."""

    name: str
    metastore: Metastore
    mirrors: Mirrors
    host: GroupHost
    measures: Measures = NO_MEASURES
    data_dir: Path | None = None
    """Directory of the node's own notes; None: it notes nothing."""

    @property
    def keyspace(self) -> Keyspace:
        return self.mirrors.keyspace
