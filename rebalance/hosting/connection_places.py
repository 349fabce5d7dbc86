"""Limit of connections by address, on all listeners that share the places: taken before anything of a
connection is read."""

from __future__ import annotations

import resource
from collections.abc import Callable

from rebalance.hosting.client_network import network_of

FILES_KEPT = 256
"""Descriptors for what a process opens itself: files, its metastore, other servers."""

UNLIMITED = 1 << 20


class ConnectionPlace:
    """Place of one connection. ``give_way`` ends it where another one needs the place. ``is_counted``: not
    where its address is exempt."""

    def __init__(
        self, places: ConnectionPlaces, network: str, give_way: Callable[[], None], *, is_counted: bool
    ) -> None:
        self._places = places
        self.network = network
        self.give_way = give_way
        self.is_counted = is_counted

    def give_back(self) -> None:
        """Give the place back once the connection has ended, or is counted elsewhere; more often is the
        same."""
        self._places.free(self)


class ConnectionPlaces:
    """Places of at most ``of_address_max`` connections from one address; a further one is refused or, with
    ``newest_first``, the oldest gives way to it. At most ``all_max`` together: then the oldest of whoever has
    the most gives way. An address that ``is_exempt`` is not counted."""

    def __init__(
        self,
        of_address_max: int,
        all_max: int,
        *,
        newest_first: bool = False,
        is_exempt: Callable[[str], bool] = lambda address: False,
    ) -> None:
        self._of_address_max = of_address_max
        self._all_max = all_max
        self._newest_first = newest_first
        self._is_exempt = is_exempt
        self._taken: dict[str, dict[ConnectionPlace, None]] = {}
        self._count = 0

    @property
    def open(self) -> int:
        """Connections that are counted now."""
        return self._count

    def take(self, address: str, give_way: Callable[[], None]) -> ConnectionPlace | None:
        """Take a place for a connection that begins. None: the address has as many as it may."""
        is_counted = not self._is_exempt(address)
        place = ConnectionPlace(self, network_of(address), give_way, is_counted=is_counted)
        if not is_counted:
            return place
        same = self._taken.get(place.network, {})
        fullest: dict[ConnectionPlace, None] = {}
        if len(same) >= self._of_address_max:
            fullest = same
        elif self._count >= self._all_max:
            fullest = max(self._taken.values(), key=len)
        if fullest:
            if len(fullest) <= len(same) and not self._newest_first:
                return None
            self._end_oldest(fullest)
        self._taken.setdefault(place.network, {})[place] = None
        self._count += 1
        return place

    def free(self, place: ConnectionPlace) -> None:
        same = self._taken.get(place.network, {})
        if place in same:
            del same[place]
            self._count -= 1
            if not same:
                del self._taken[place.network]

    def _end_oldest(self, places: dict[ConnectionPlace, None]) -> None:
        oldest = next(iter(places))
        self.free(oldest)
        oldest.give_way()


def connections_bound() -> int:
    """Return how many connections this process can have, by its limit of descriptors: those that it needs
    itself are left."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if files == resource.RLIM_INFINITY else max(files - FILES_KEPT, files // 2)
