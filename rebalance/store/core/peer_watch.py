"""Suspicion of peers that this server has waited for too long.

A peer that owes an acknowledgement is suspected for that. One that an exchange waits for may itself wait for
somebody else, and one that levels or supplies a copy may have much to do, so it is asked whether it is there.
A request to the metastore may be lost, so what was said is said again.
"""

from __future__ import annotations

from rebalance.exchange.core.exchange_states import Phase
from rebalance.store.core.exchange_log import awaited_by
from rebalance.store.core.filling import FillStep
from rebalance.store.core.shared_state import SharedState
from rebalance.store.core.store_effects import SetSuspect
from rebalance.store.core.store_messages import PeerPing

PROMPT = (Phase.LATCH, Phase.SENT)
"""Phases in which another server than the coordinator waits for the coordinator."""


class PeerWatch:
    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._said: dict[str, tuple[bool, int]] = {}
        self._said_ms = 0
        self._since: dict[tuple[str, bool], int] = {}
        self._heard: dict[str, int] = {}
        self._pinged_ms = 0

    def heard(self, peer: str) -> None:
        self._heard[peer] = self._shared.now_ms

    def forget(self, peer: str) -> None:
        """The ring removed it."""
        self._said.pop(peer, None)
        self._heard.pop(peer, None)

    def tick(self) -> None:
        shared, limits = self._shared, self._shared.limits
        late = self._debtors()
        exchanging = self._awaited()
        awaited = {(peer, True) for peer in exchanging} | {(peer, False) for peer in self._fillers()}
        self._since = {each: self._since.get(each, shared.now_ms) for each in awaited}
        for (peer, in_exchange), since in self._since.items():
            silent = shared.now_ms - max(since, self._heard.get(peer, since))
            waited = shared.now_ms - since if in_exchange else 0
            if silent >= limits.suspect_ms or waited >= limits.exchange_wait_ms:
                late.add(peer)
        if awaited and shared.now_ms - self._pinged_ms >= limits.resend_ms:
            self._pinged_ms = shared.now_ms
            for peer in sorted({peer for peer, _ in awaited}):
                shared.send(peer, PeerPing())
        self._say(late)

    def _say(self, late: set[str]) -> None:
        """Tell new suspicions at once, and all of them again now and then. That a peer is suspected no more is
        repeated for a TTL: a server that reaches the metastore no sooner ends, and its suspicions with it."""
        shared, now_ms = self._shared, self._shared.now_ms
        orders = shared.worker.cluster.servers if shared.worker is not None else {}
        again = now_ms - self._said_ms >= shared.limits.suspect_ms
        if again:
            self._said_ms = now_ms
        for peer in sorted(late | self._said.keys()):
            suspected = peer in late
            known, since = self._said.get(peer, (False, now_ms))
            if peer not in self._said or known != suspected:
                self._said[peer] = suspected, now_ms
            elif not suspected and now_ms - since >= shared.limits.ttl_ms:
                del self._said[peer]
                continue
            elif not again:
                continue
            if peer in orders:
                shared.out.append(SetSuspect(peer, orders[peer], suspected))

    def _debtors(self) -> set[str]:
        """Return the peers that have not acknowledged a write that was made too long ago."""
        shared = self._shared
        debtors: set[str] = set()
        for partition in shared.pending:
            leading = shared.copies[partition].leading
            if leading is None or not leading.pending:
                continue
            if shared.now_ms - leading.pending[0].made_ms >= shared.limits.suspect_ms:
                debtors.update(leading.lagging(shared.peers))
        return debtors

    def _fillers(self) -> set[str]:
        """Owners whom the primary waits for until they have its position, and whoever supplies a copy here."""
        shared = self._shared
        peers: set[str] = set()
        for partition in list(shared.levelling):
            copy = shared.copies.get(partition)
            if copy is None or copy.leading is None or not copy.leading.unlevelled:
                shared.levelling.discard(partition)
            else:
                peers |= copy.leading.unlevelled
        fillings = (shared.copies[partition].filling for partition in shared.filling)
        peers |= {each.supplier for each in fillings if each is not None and each.step is FillStep.WAIT}
        return (peers & shared.peers.keys()) - {shared.name}

    def _awaited(self) -> set[str]:
        """Return the peers that an exchange waits for."""
        worker = self._shared.worker
        if worker is None or worker.running is None:
            return set()
        if worker.is_coordinator:
            return set(awaited_by(worker)) - {worker.name}
        coordinator = worker.cluster.coordinator
        return {coordinator} if worker.running.phase in PROMPT and coordinator is not None else set()
