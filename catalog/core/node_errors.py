"""Rows of the table of errors (``catalog.core.error_kinds``): nodes that leave."""

from __future__ import annotations

from catalog.core.error_rows import ErrorRow

NODE_NOT_FOUND = ErrorRow(
    4202, "42704", 404, "The node does not exist", "`zonectl status` lists them; names are case-sensitive."
)
DRAIN_LEAVES_NO_DATA_NODE = ErrorRow(
    5003,
    "55006",
    409,
    "A zone would have no data node",
    "Start another node that the zone can use, or change the zone.",
)
NODE_ALIVE = ErrorRow(
    5004, "55006", 409, "The node is alive", "Drain a node that lives; remove one that is gone for good."
)
UPGRADE_NOT_READY = ErrorRow(
    5006,
    "55006",
    409,
    "The upgrade cannot be finalised yet",
    "Start the new version of what the message names: nothing was changed.",
)
NODE_NEEDED = ErrorRow(
    5005,
    "55006",
    409,
    "Partitions need the node",
    "Start the node, or recover the partitions that the message names.",
)
