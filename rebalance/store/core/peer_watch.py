"""Whom this server suspects: a peer that it has waited for too long.

A peer that owes an acknowledgement is suspected for that. One that an exchange waits for may itself wait for
somebody else, so it is asked whether it is there.
"""

from __future__ import annotations

from rebalance.exchange.core.exchange_states import Phase
from rebalance.store.core.server_books import ServerBooks
from rebalance.store.core.store_effects import SetSuspect
from rebalance.store.core.store_messages import PeerPing

PROMPT = (Phase.LATCH, Phase.SENT)
"""Phases in which another server than the coordinator waits for the coordinator."""


class PeerWatch:
    def __init__(self, books: ServerBooks) -> None:
        self._books = books
        self._suspected: set[str] = set()
        self._since: dict[str, int] = {}
        self._heard: dict[str, int] = {}
        self._pinged_ms = 0

    def heard(self, peer: str) -> None:
        self._heard[peer] = self._books.now_ms

    def forget(self, peer: str) -> None:
        """The ring removed it."""
        self._suspected.discard(peer)
        self._since.pop(peer, None)
        self._heard.pop(peer, None)

    def tick(self) -> None:
        books, limits = self._books, self._books.limits
        debtors = self._debtors()
        awaited = self._awaited()
        for peer in list(self._since):
            if peer not in awaited:
                del self._since[peer]
        late = set(debtors)
        for peer in awaited:
            since = self._since.setdefault(peer, books.now_ms)
            silent = books.now_ms - max(since, self._heard.get(peer, since))
            if silent >= limits.suspect_ms or books.now_ms - since >= limits.exchange_wait_ms:
                late.add(peer)
        if awaited and books.now_ms - self._pinged_ms >= limits.resend_ms:
            self._pinged_ms = books.now_ms
            for peer in sorted(awaited):
                books.send(peer, PeerPing())
        for peer in sorted(late ^ self._suspected):
            books.out.append(SetSuspect(peer, peer in late))
        self._suspected = late

    def _debtors(self) -> set[str]:
        """Who has not acknowledged a write that was made too long ago."""
        books = self._books
        debtors: set[str] = set()
        for partition in books.pending:
            leading = books.copies[partition].leading
            if leading is None or not leading.pending:
                continue
            if books.now_ms - leading.pending[0].made_ms >= books.limits.suspect_ms:
                debtors.update(leading.lagging(books.peers))
        return debtors

    def _awaited(self) -> set[str]:
        worker = self._books.worker
        if worker is None or worker.running is None:
            return set()
        if worker.is_coordinator:
            running = worker.running
            if running.phase is Phase.LATCH:
                return set(running.counters_of_latch(worker.cluster) - running.counted - {worker.name})
            return set(worker.awaited) if running.phase is Phase.COLLECT else set()
        coordinator = worker.cluster.coordinator
        return {coordinator} if worker.running.phase in PROMPT and coordinator is not None else set()
