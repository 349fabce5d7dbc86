"""Failures of one attempt at one member or store server."""

from __future__ import annotations

from urllib.parse import quote, urlsplit


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
