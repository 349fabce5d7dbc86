"""Recovery of partitions that have lost the majority of their voters."""
