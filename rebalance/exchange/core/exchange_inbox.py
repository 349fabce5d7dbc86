"""What an exchange worker keeps for others: messages that came before their exchange did, clients that wait,
and full messages that somebody may still ask for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from rebalance.core.topology_version import TopologyVersion
from rebalance.exchange.core.exchange_effects import Effect, Send
from rebalance.exchange.core.exchange_messages import FullMessage, LatchCount, SingleMessage
from rebalance.exchange.core.held_maps import HeldMaps
from rebalance.exchange.core.running_exchange import EarlySingles

FINISHED_KEPT = 4
"""Nobody can be further behind than one exchange: the next one needs the single map of every server."""


@dataclass(slots=True)
class ExchangeInbox:
    """``clients``: by name, the version that each asked for."""

    singles: EarlySingles = field(default_factory=dict)
    counts: dict[TopologyVersion, set[str]] = field(default_factory=dict)
    clients: dict[str, TopologyVersion] = field(default_factory=dict)
    finished: deque[FullMessage] = field(default_factory=lambda: deque(maxlen=FINISHED_KEPT))

    def keep_single(self, message: SingleMessage, exchange: TopologyVersion) -> None:
        """Whoever sends its map has passed the latch, which another coordinator may have opened."""
        self.singles[message.sender, exchange] = message
        self.counts.setdefault(exchange, set()).add(message.sender)

    def keep_count(self, message: LatchCount) -> None:
        self.counts.setdefault(message.exchange, set()).add(message.sender)

    def take_counts(self, version: TopologyVersion) -> set[str]:
        return self.counts.pop(version, set())

    def finish(self, message: FullMessage) -> None:
        """The exchange ended with ``message``: what was kept for it is of no use any more."""
        self.finished.append(message)
        self.singles = {key: each for key, each in self.singles.items() if key[1] > message.version}
        self.counts = {key: each for key, each in self.counts.items() if key > message.version}

    def finished_as(self, version: TopologyVersion, order: int) -> FullMessage | None:
        """How the exchange of ``version`` ended, as said by the coordinator of ``order``."""
        for each in self.finished:
            if each.covers(version):
                return replace(each, order=order)
        return None

    def answers_to_clients(self, held: HeldMaps, order: int) -> list[Effect]:
        """Clients get the full map once the exchange is finished here; nobody waits for them (PME-026)."""
        ready = sorted(name for name, version in self.clients.items() if version <= held.version)
        if not self.finished:
            return []
        for name in ready:
            del self.clients[name]
        message = replace(
            self.finished[-1], version=held.version, basis=held.basis, order=order, maps=held.maps
        )
        return [Send(name, message) for name in ready]
