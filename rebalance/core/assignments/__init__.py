"""Assignments of partitions, and the guarded writes that change them."""
