"""Read models: what clients see of zones, partitions, nodes, operations and health."""
