"""Owner of a data directory: a file in it names its node and installation, and no other node uses it.

Directories that were swapped, or mounted at another node, would be taken for that node's own copies: what it
does not hold there is deleted, and what it should hold is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rebalance.hosting.private_files import replace_privately

OWNER_FILE = "owner.json"
PARTS = ("store", "members", "mirrors")
"""Parts of a node's data directory: a directory of its own, and two with one for each partition."""


class ForeignDirectoryError(Exception):
    """The directory is another node's, or of another installation; nothing in it was changed."""


@dataclass(frozen=True, slots=True)
class DirectoryOwner:
    """``installation`` empty: not known yet."""

    node: str
    installation: str = ""

    def __str__(self) -> str:
        return f"{self.node} of installation {self.installation}" if self.installation else self.node


def owner_of(directory: Path) -> DirectoryOwner | None:
    """Read the owner; None: the directory has no name yet, as those of earlier releases. Raises
    ForeignDirectoryError for a name that cannot be read."""
    path = directory / OWNER_FILE
    try:
        document = json.loads(path.read_bytes())
        return DirectoryOwner(str(document["node"]), str(document["installation"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ForeignDirectoryError(
            f"{path} cannot be read, so the owner of the directory is unknown: {error!r}; delete the file if "
            f"it "
            "is this node's own"
        ) from error


def check_owner(directories: Iterable[Path], owner: DirectoryOwner) -> None:
    """Raises ForeignDirectoryError, which names both, for the first one that is another's."""
    for directory in directories:
        known = owner_of(directory)
        if known is None:
            continue
        is_elsewhere = owner.installation and known.installation != owner.installation
        if known.node != owner.node or is_elsewhere:
            raise ForeignDirectoryError(
                f"{directory} is the directory of node {known}, and this is node {owner}: start each node with "
                "its own directory"
            )


def name_directories(directories: Iterable[Path], owner: DirectoryOwner) -> None:
    """Name the directories that have no name yet. Raises OSError."""
    content = json.dumps({"v": 1, **asdict(owner)}).encode()
    for directory in directories:
        if not (directory / OWNER_FILE).exists():
            replace_privately(directory / OWNER_FILE, content)


def name_as(directory: Path, parent: Path) -> None:
    """A directory that is made below one that has a name gets the same. Raises OSError."""
    path = parent / OWNER_FILE
    if path.exists() and not (directory / OWNER_FILE).exists():
        replace_privately(directory / OWNER_FILE, path.read_bytes())


def node_directories(data_dir: Path) -> Iterator[Path]:
    """The data directory of a node, and those of its store, members and mirrors, as far as there are."""
    store, *parts = (data_dir / part for part in PARTS)
    yield from (directory for directory in (data_dir, store) if directory.is_dir())
    for part in parts:
        places = sorted(part.iterdir()) if part.is_dir() else ()
        yield from (place for place in places if place.is_dir() and not place.name.startswith("."))
