"""Writes of one key as values, what answers them, and how one attempt at one member or server failed.

A write of unknown outcome is abandoned by the next write of its key.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

KEY_CHARS_MAX = 1024
OPERATION_ID_PATTERN = "^[!-~]{1,128}$"
ABANDONED_MAX = 16
"""Operation ids that one write may name."""


@dataclass(frozen=True, slots=True)
class Write:
    """``value`` None deletes the key. ``if_revision``: only while the key's last write is the one of this
    revision; ``if_absent``: only while there is no such key. ``abandons``: operation ids of earlier writes
    whose outcome is unknown: whichever of them has not been applied before this one never will be. Raises
    ValueError for what does not go together.
    """

    key: str
    value: str | None
    operation: str
    if_revision: int | None = None
    if_absent: bool = False
    abandons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_key(self.key)
        check_text("value", self.value or "")
        if not re.fullmatch(OPERATION_ID_PATTERN, self.operation):
            raise ValueError("an operation id has 1 to 128 letters, digits and signs of ASCII, and no blanks")
        if self.if_revision is not None and self.if_absent:
            raise ValueError("give if_revision or if_absent, not both")
        if self.if_revision is not None and self.if_revision < 1:
            raise ValueError(f"a revision is 1 or higher, not {self.if_revision}")

    @property
    def is_conditional(self) -> bool:
        return self.if_absent or self.if_revision is not None


@dataclass(frozen=True, slots=True)
class Written:
    """``revision``: of the partition's group, at which it was done; 0: the server is of an earlier build.
    ``repeated``: by an earlier attempt or call."""

    revision: int
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """``value`` None: there is no such key."""

    value: bytes | None
    revision: int = 0


def check_key(key: str) -> None:
    """1 to 1024 characters, of which none is half of a pair. Raises ValueError."""
    if not 1 <= len(key) <= KEY_CHARS_MAX:
        raise ValueError(f"a key has 1 to {KEY_CHARS_MAX} characters, not {len(key)}")
    check_text("key", key)


def check_text(what: str, text: str) -> None:
    """Raises ValueError for what is not in UTF-8: half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the {what} is not UTF-8 text (character {error.start + 1})") from error


class AttemptFailedError(Exception):
    """Failed attempt, after which the same request may be sent to another server. ``may_be_done``: it may have
    been carried out, or may yet be; ``is_well``: the server works, but another one may do it; ``is_map_old``:
    the map named an earlier generation; ``leader``: the server that does it, as far as is known."""

    def __init__(
        self,
        message: str,
        *,
        may_be_done: bool = False,
        is_well: bool = False,
        is_map_old: bool = False,
        leader: str = "",
    ) -> None:
        super().__init__(message)
        self.may_be_done = may_be_done
        self.is_well = is_well or is_map_old
        self.is_map_old = is_map_old
        self._leader = leader

    def names(self, url: str) -> bool:
        """True for the URL of the server that leads."""
        return bool(self._leader) and f"/{quote(self._leader, safe='')}/" in urlsplit(url).path


KEYS_MAX = 10_000


class UnsettledWrites:
    """Operation ids by zone and key, oldest first: of a key the newest ``ABANDONED_MAX``, of the newest
    ``KEYS_MAX`` keys."""

    def __init__(self) -> None:
        self._ids: OrderedDict[tuple[str, str], list[str]] = OrderedDict()

    def of(self, zone: str, key: str, but: str = "") -> tuple[str, ...]:
        """Operations of the key without an outcome, without ``but``, which is being sent again."""
        return tuple(operation for operation in self._ids.get((zone, key), ()) if operation != but)

    def add(self, zone: str, key: str, operation: str) -> None:
        ids = [*self.of(zone, key, but=operation), operation]
        self._ids[zone, key] = ids[-ABANDONED_MAX:]
        self._ids.move_to_end((zone, key))
        if len(self._ids) > KEYS_MAX:
            self._ids.popitem(last=False)

    def settle(self, zone: str, key: str, operations: Iterable[str]) -> None:
        """Forget operations that have an outcome now."""
        settled = set(operations)
        left = [operation for operation in self._ids.get((zone, key), ()) if operation not in settled]
        if left:
            self._ids[zone, key] = left
        else:
            self._ids.pop((zone, key), None)
