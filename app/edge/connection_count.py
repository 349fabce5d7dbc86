"""How many connections each address has open, on all ports of a server together."""

from __future__ import annotations

from collections import Counter

from app.client_network import network_of
from app.edge.trust import Trust


class ConnectionCount:
    """At most ``connections_max`` from one address; those of trusted proxies are not counted."""

    def __init__(self, connections_max: int, trust: Trust) -> None:
        self._connections_max = connections_max
        self._trust = trust
        self._open: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """Connections that are counted now."""
        return self._open.total()

    def take(self, address: str) -> bool:
        """Of a connection that begins. False: the address has as many as it may."""
        if self._trust.is_proxy(address):
            return True
        if self._open[network_of(address)] >= self._connections_max:
            return False
        self._open[network_of(address)] += 1
        return True

    def give_back(self, address: str) -> None:
        """Of a connection for which ``take`` was True."""
        if self._trust.is_proxy(address):
            return
        network = network_of(address)
        left = self._open[network] - 1
        if left:
            self._open[network] = left
        else:
            del self._open[network]
