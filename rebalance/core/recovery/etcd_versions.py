"""Versions of etcd, and those whose stores cannot be trusted after a crash."""

from __future__ import annotations

from collections.abc import Mapping

Version = tuple[int, int, int]

BROKEN: tuple[Version, Version] = ((3, 5, 0), (3, 5, 2))
"""The first and the last version that can corrupt a cluster of several members after a crash: a store may lose
what it had and keep its revision."""


def parse_version(text: str) -> Version:
    """Parse a version, as "3.5.16" or "3.6.0-rc.1". Raises ValueError for anything else."""
    major, minor, patch = text.split("-")[0].split(".")
    return int(major), int(minor), int(patch)


def is_broken(version: Version) -> bool:
    return BROKEN[0] <= version <= BROKEN[1]


def broken_versions(versions: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Nodes whose etcd makes data revisions prove nothing after a crash (R7), with its version, by name.
    ``versions``: of nodes; what is no version, as that of a node that has not published it, is left out."""
    broken = []
    for node, text in sorted(versions.items()):
        try:
            version = parse_version(text)
        except ValueError:
            continue
        if is_broken(version):
            broken.append((node, text))
    return tuple(broken)
