"""What the duties of a node share, over a store and with a host that a test has made."""

from __future__ import annotations

from typing import cast

from rebalance.core.keys import Keyspace
from rebalance.nodes.node_context import NodeContext
from rebalance.nodes.partition_view import Mirrors
from rebalance.ports.groups import GroupHost
from rebalance.ports.metastore import Metastore


def node_context(
    metastore: Metastore, name: str = "n1", host: object = None, mirrors: Mirrors | None = None
) -> NodeContext:
    """``host``: has what the duties under test call; None: they call nothing."""
    shown = mirrors or Mirrors.over(metastore, Keyspace())
    return NodeContext(name, metastore, shown, cast(GroupHost, host))
