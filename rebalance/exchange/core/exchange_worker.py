"""The exchange worker of one node: one queue, one exchange at a time, in the order of the ring.

Messages and answers step it; what must be done comes back as effects. It remembers what it needs to answer a
coordinator that takes over, and it takes over itself when it is the oldest server left. Rules that make
take-over safe:

- A single map sent to a coordinator is a promise: full messages of earlier coordinators are refused from then
  on (``_obeys``). A new coordinator concludes by itself only when *every* living server has sent it its map, so
  no server that lives can have finished the exchange in another way.
- A server that has finished the exchange already answers with the full message, which is then everybody's.

Between exchanges the worker tells state changes of its node, and asks for the late switch once it is due.

Source: PME-016..027, PME-041..050, PME-061..075, PME-099, PME-108..110, PME-117..122, PME-134, PME-138.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import FullMap, Reception, SingleMap, StorePosition
from rebalance.core.partition_maps.topology_version import (
    NO_VERSION,
    Cluster,
    DiscoveryEvent,
    TopologyVersion,
    Trigger,
)
from rebalance.exchange.core.exchange_effects import (
    Apply,
    AskSwitch,
    AwaitUpdates,
    CloseZones,
    Effect,
    Entered,
    Finished,
    KeepResult,
    OpenZones,
    Prepare,
    Send,
    TakeTopology,
    Warn,
)
from rebalance.exchange.core.exchange_messages import (
    FullMessage,
    GoneServer,
    LatchCount,
    LatchOpen,
    Message,
    ResultRecord,
    ResultState,
    SingleMessage,
    SingleRequest,
)
from rebalance.exchange.core.exchange_result import affinities_of, conclude, has_digests
from rebalance.exchange.core.exchange_states import ExchangePlan, ExchangeType, Phase, plan_exchange
from rebalance.exchange.core.held_maps import HeldMaps
from rebalance.exchange.core.late_affinity import AffinityFunction, ZoneAffinity
from rebalance.exchange.core.running_exchange import ExchangeInbox, RunningExchange, same_servers, wanted_copies

PATIENCE_TICKS = 20
"""Resend periods since the last exchange: after that a switch is asked for although some copies of the zone are
not ready, again and again."""


class ExchangeWorker:
    """``self.queue`` and ``self.running`` may be looked at, not changed. ``cluster``: as of the event before
    the node's own join; ``affinity``: the ideal lists as this node has them; where the coordinator's are other
    ones these are fetched (PME-036). With ``results`` the outcome of an exchange is committed before anybody is
    told; ``gone``: servers that went after the last result, in order; ``maps``: the rules by which states are
    taken."""

    def __init__(
        self,
        name: str,
        order: int,
        cluster: Cluster,
        affinity: AffinityFunction,
        results: ResultState | None = None,
        gone: Sequence[GoneServer] = (),
        maps: type[HeldMaps] = HeldMaps,
    ) -> None:
        self.name = name
        self.order = order
        self.cluster = cluster
        self.held = maps(cluster.version, results=results)
        self.queue: deque[tuple[DiscoveryEvent, Cluster]] = deque()
        self.running: RunningExchange | None = None
        self.begins_after = cluster.version
        self._affinity = affinity
        self._obeys = 0
        self._full: FullMessage | None = None
        self._inbox = ExchangeInbox()
        self._clusters: dict[TopologyVersion, Cluster] = {}
        self._gone = list(gone)
        self._local: Mapping[ZoneId, SingleMap] = {}
        self._asked: TopologyVersion | None = None
        self._judged: Mapping[ZoneId, FullMap] = {}
        self._idle, self._idle_ticks = NO_VERSION, 0
        self._is_confirmed = True

    @property
    def is_coordinator(self) -> bool:
        return self.cluster.coordinator == self.name

    @property
    def is_idle(self) -> bool:
        return self.running is None and not self.queue

    def cluster_at(self, version: TopologyVersion) -> Cluster:
        return self._clusters[version]

    def state_changed(self, maps: Mapping[ZoneId, SingleMap]) -> list[Effect]:
        """Copies of this node changed since the last exchange, and the notification's delay is over. While an
        exchange waits or runs nothing is sent: it will carry the news."""
        self._local = maps
        return self._notify() if self.is_idle else []

    @property
    def awaited(self) -> frozenset[str]:
        """Servers whose single map the coordinator waits for now (PME-064); empty elsewhere."""
        running = self.running
        if running is None or running.phase is not Phase.COLLECT:
            return frozenset()
        view = same_servers(self._clusters[running.last_version], self.cluster)
        return view - running.singles.keys() - {self.name}

    def discovered(self, event: DiscoveryEvent) -> list[Effect]:
        """The ring's next event. Raises ValueError when one is missing before it."""
        before, self.cluster = self.cluster, self.cluster.after(event)
        self._clusters[event.version] = self.cluster
        self.queue.append((event, before))
        if event.node in before.servers and event.node not in self.cluster.servers:
            self._gone.append(GoneServer(event.version, event.node, event.trigger is Trigger.NODE_LEFT))
        changed = self._coordinator_changed() if self.cluster.coordinator != before.coordinator else []
        return changed + self._take_held_message() + self._go_on()

    def received(self, message: Message) -> list[Effect]:
        """A message of another node, in any order, any number of times."""
        match message:
            case SingleMessage():
                effects = self._on_single(message)
            case FullMessage():
                effects = self._on_full(message)
            case SingleRequest():
                effects = self._on_request(message)
            case LatchCount():
                effects = self._on_count(message)
            case LatchOpen():
                effects = self._on_open(message)
        return effects + self._go_on()

    def topology_taken(self, version: TopologyVersion) -> list[Effect]:
        running = self._in(version, Phase.TOPOLOGY)
        if running is None:
            return []
        if running.is_join_of(self.name):
            return self._prepare(running)
        return self._enter(running, Phase.RELEASE, AwaitUpdates(version, commits=False))

    def updates_ended(self, version: TopologyVersion) -> list[Effect]:
        """Note that no update of an earlier version is open here: answer to either ``AwaitUpdates``."""
        running = self._in(version, Phase.RELEASE, Phase.COMMITS)
        if running is None:
            return []
        if running.phase is Phase.COMMITS:
            return self._prepare(running)
        effects = self._enter(running, Phase.LATCH)
        return effects + self._count_down(running)

    def prepared(
        self,
        version: TopologyVersion,
        maps: Mapping[ZoneId, SingleMap],
        history: Mapping[tuple[ZoneId, int], StorePosition],
    ) -> list[Effect]:
        """Take this node's copies, which do not change their states any more until the exchange is over."""
        running = self._in(version, Phase.PREPARE)
        if running is None:
            return []
        self._local = maps
        running.own = SingleMessage(self.name, self.order, version, self.held.basis, maps, history)
        return self._report(running) + self._go_on()

    def tick(self) -> list[Effect]:
        """The resend period is over: whatever may have been lost is sent again."""
        running = self.running
        if running is None:
            return self._tick_at_rest() if self.is_idle else []
        coordinator = self.cluster.coordinator
        match running.phase:
            case Phase.LATCH:
                return self._count_down(running)
            case Phase.SENT if running.own is not None and coordinator is not None:
                return [Send(coordinator, running.own)]
            case Phase.COLLECT:
                request = SingleRequest(self.name, self.order, running.version)
                return [Send(node, request) for node in sorted(self.awaited)]
            case Phase.COMMIT:
                return self._commit(running)
            case _:
                return []

    def _go_on(self) -> list[Effect]:
        """Do whatever is possible without an answer: finish what was collected, begin what waits."""
        effects: list[Effect] = []
        while True:
            if self.running is None:
                while self.queue and self.queue[0][0].version <= self.held.version:
                    self.queue.popleft()
                if not self.queue:
                    return effects + self._inbox.answers_to_clients(self.held, self.order) + self._ask_switch()
                effects += self._begin(*self.queue.popleft())
            elif self.running.phase is Phase.COLLECT and not self.awaited and self._has_events(self.running):
                effects += self._collected(self.running)
            else:
                # The last one that the latch waited for may have gone.
                return effects + self._open_latch(self.running)

    def _begin(self, event: DiscoveryEvent, before: Cluster) -> list[Effect]:
        plan = plan_exchange(event, before, self.name, self.held.can_lose(event.node))
        running = RunningExchange(event, before, plan, events=[event])
        entered = Entered(event.version, plan.type, Phase.INIT)
        if plan.type is ExchangeType.NONE or plan.is_local:
            return [entered, *self._switch_locally(event, plan)]
        self.running = running
        if plan.type is ExchangeType.CLIENT:
            running.own = SingleMessage(self.name, self.order, event.version, self.held.basis, is_client=True)
            return [entered, *self._report(running)]
        running.counted |= self._inbox.counts.pop(event.version, set())
        effects: list[Effect] = [entered]
        if plan.stops:
            effects.append(CloseZones(event.version, plan.stops))
        if plan.starts:
            effects.append(OpenZones(event.version, plan.starts))
        return effects + self._enter(running, Phase.TOPOLOGY, TakeTopology(event.version))

    def _switch_locally(self, event: DiscoveryEvent, plan: ExchangePlan) -> list[Effect]:
        if not plan.is_local:
            self.held = replace(self.held, version=event.version)
            return [Finished(event.version, plan.type)]
        self.held = self.held.after_leave(event, self.cluster_at(event.version))
        published: list[Effect] = []
        if self.is_coordinator:
            # What the servers hold may differ in copies that are on their way out: one map for all again.
            self.held = self.held.restamped(self.order)
            published = self._publish(self.held.update_message(self.order))
        return [Finished(event.version, plan.type), *published]

    def _report(self, running: RunningExchange) -> list[Effect]:
        """The single map is ready: it goes to the coordinator, or into the coordinator's own collection."""
        if running.own is None:
            return []
        if not self.is_coordinator or running.plan.type is ExchangeType.CLIENT:
            effects = self._enter(running, Phase.SENT)
            coordinator = self.cluster.coordinator
            return [*effects, Send(coordinator, running.own)] if coordinator is not None else effects
        running.singles[self.name] = running.own
        running.take_early(self._inbox.singles)
        running.phase = Phase.COLLECT
        return [Entered(running.version, running.plan.type, Phase.COLLECT, self.awaited)]

    def _collected(self, running: RunningExchange) -> list[Effect]:
        """All single maps are in. Once: look for events to be merged; then conclude, or wait for a joiner."""
        if not running.scanned:
            running.merge(self.queue, self._inbox.singles)
            if self.awaited:
                return [Entered(running.version, running.plan.type, Phase.COLLECT, self.awaited)]
        gone = self._gone_since_result(running.last_version)
        collected = running.collected(self.name, self.cluster_at(running.last_version), self.held, gone)
        running.conclusion = conclude(collected, self._affinity, running.committed)
        warnings = [Warn(each) for each in running.conclusion.differences]
        if running.committed is not None or running.conclusion.record is None:
            return [*warnings, *self._concluded(running)]
        running.phase = Phase.COMMIT
        return [*warnings, Entered(running.version, running.plan.type, Phase.COMMIT), *self._commit(running)]

    # The result

    def result_kept(self, version: TopologyVersion) -> list[Effect]:
        """The result that ends with ``version`` is committed."""
        running = self.running
        if running is None or running.phase is not Phase.COMMIT or running.last_version != version:
            return []
        return self._concluded(running) + self._go_on()

    def result_exists(self, records: Sequence[ResultRecord]) -> list[Effect]:
        """Take results that were committed since, in order: of exchanges that ended before this server came,
        and maybe of this one, by a coordinator that went, or by itself when it did not hear of it."""
        running = self.running
        if running is None or running.phase is not Phase.COMMIT or self.held.results is None:
            return []
        for record in records:
            if record.previous != self.held.results.version:
                continue
            if running.conclusion is not None and record == running.conclusion.record:
                return self._concluded(running) + self._go_on()
            if record.exchange <= running.version <= record.version:
                running.follow(record)
                break
            self.held = replace(self.held, results=self.held.results.after(record))
        else:
            running.phase = Phase.COLLECT
        return self._go_on()

    def _commit(self, running: RunningExchange) -> list[Effect]:
        record = running.conclusion.record if running.conclusion is not None else None
        return [KeepResult(record)] if record is not None else []

    def _concluded(self, running: RunningExchange) -> list[Effect]:
        conclusion = running.conclusion
        return self._finish(conclusion.message, conclusion.affinities) if conclusion is not None else []

    def _has_events(self, running: RunningExchange) -> bool:
        """A committed result may cover events that are not heard of here yet."""
        if not running.is_complete:
            running.merge(self.queue, self._inbox.singles)
        return running.is_complete and not self.awaited

    def _finish(self, message: FullMessage, affinities: Mapping[ZoneId, ZoneAffinity]) -> list[Effect]:
        running, effects = self.running, list[Effect]()
        if self.is_coordinator:
            message = replace(message, order=self.order)
            others = self.cluster_at(message.version).servers.keys() & self.cluster.servers.keys() - {self.name}
            effects += [Send(node, message) for node in sorted(others)]
        kind = running.plan.type if running is not None else ExchangeType.ALL
        first = running.version if running is not None else message.version
        merged = tuple(event.version for event, _ in self.queue if event.version <= message.version)
        self.running, self._full, self._is_confirmed = None, None, True
        self.held = self.held.after_exchange(message, affinities, self.cluster_at(message.version).zones)
        self._inbox.finish(message)
        self._clusters = {key: each for key, each in self._clusters.items() if key >= message.version}
        self._gone = [each for each in self._gone if each.version > message.version]
        finished = Finished(message.version, kind, tuple(each for each in merged if each > first))
        return [*effects, Apply(message, affinities), finished]

    # Messages

    def _on_single(self, message: SingleMessage) -> list[Effect]:
        if message.exchange is None:
            return self._on_state(message)
        if message.is_client:
            self._inbox.clients[message.sender] = message.exchange
            return []
        running = self.running
        if message.exchange <= self.held.version:
            finished = self._inbox.finished_as(message.exchange, self.order)
            if finished is not None and message.wants_affinity:
                ideal = {zone: each.ideal for zone, each in self.held.affinities.items()}
                finished = replace(finished, ideal=ideal)
            return [Send(message.sender, finished)] if finished is not None else []
        if running is not None and running.phase is Phase.COLLECT and running.takes(message):
            running.singles[message.sender] = message
            return [Entered(running.version, running.plan.type, Phase.COLLECT, self.awaited)]
        self._inbox.keep_single(message, message.exchange)
        if running is not None and running.version == message.exchange:
            running.counted.add(message.sender)
        return []

    def _on_full(self, message: FullMessage) -> list[Effect]:
        if message.exchange is None:
            return self._on_update(message)
        running = self.running
        if message.order < self._obeys:
            return []
        if running is None:
            if self._is_confirmed or message.version < self.held.version:
                return []
        elif not running.ends_with(message):
            return []
        self._full = message
        return self._take_held_message()

    def _take_held_message(self) -> list[Effect]:
        """A full message may be ahead of this node's view of the ring: it waits until the view is there."""
        message, running = self._full, self.running
        if message is None or message.version > self.cluster.version:
            return []
        if message.order < self._obeys:
            self._full = None
            return []
        function: AffinityFunction | None = self._affinity
        after, joins = self.cluster_at(message.version), running is not None and running.is_join_of(self.name)
        if not has_digests(message, after, self._affinity):
            function = None
            if not message.ideal:
                return self._fetch_lists(message)
        return self._finish(message, affinities_of(message, after, function, joins))

    def _fetch_lists(self, message: FullMessage) -> list[Effect]:
        """The coordinator means other ideal lists than this node has: it is asked for them (PME-036)."""
        running, coordinator = self.running, self.cluster.coordinator
        self._full = None
        if running is None or running.own is None or coordinator is None:
            return []
        running.own = replace(running.own, wants_affinity=True)
        return [Send(coordinator, running.own)]

    def _on_request(self, message: SingleRequest) -> list[Effect]:
        self._obeys = max(self._obeys, message.order)
        finished = self._inbox.finished_as(message.exchange, message.order)
        if finished is not None:
            return [Send(message.sender, finished)]
        running = self.running
        if running is not None and running.own is not None and running.phase is Phase.SENT:
            return [Send(message.sender, running.own)]
        return []

    def _on_count(self, message: LatchCount) -> list[Effect]:
        if message.exchange <= self.begins_after:
            return []  # meant for the server that had this name before: how that latch ended is not known here
        running = self.running if self.running and self.running.version == message.exchange else None
        if message.exchange <= self.held.version or (running and running.latch_open):
            return [Send(message.sender, LatchOpen(message.exchange, self.order))]
        if running is None:
            self._inbox.counts[message.exchange].add(message.sender)
            return []
        running.counted.add(message.sender)
        return self._open_latch(running)

    def _on_open(self, message: LatchOpen) -> list[Effect]:
        running = self._in(message.exchange, Phase.LATCH)
        if running is None:
            return []
        running.latch_open = True
        return self._enter(running, Phase.COMMITS, AwaitUpdates(running.version, commits=True))

    # The latch

    def _count_down(self, running: RunningExchange) -> list[Effect]:
        coordinator = self.cluster.coordinator
        if not self.is_coordinator and coordinator is not None:
            return [Send(coordinator, LatchCount(self.name, running.version))]
        running.counted.add(self.name)
        return self._open_latch(running)

    def _open_latch(self, running: RunningExchange) -> list[Effect]:
        """Opens when every living server of before the event has counted down; on the coordinator only."""
        waited = running.counters_of_latch(self.cluster)
        if not self.is_coordinator or running.latch_open or not running.plan.is_distributed:
            return []
        if not waited <= running.counted:
            return []
        running.latch_open = True
        message = LatchOpen(running.version, self.order)
        effects: list[Effect] = [Send(node, message) for node in sorted(waited - {self.name})]
        if running.phase is Phase.LATCH:
            effects += self._enter(running, Phase.COMMITS, AwaitUpdates(running.version, commits=True))
        return effects

    # A coordinator went

    def _coordinator_changed(self) -> list[Effect]:
        running, coordinator = self.running, self.cluster.coordinator
        if coordinator is None:
            return []
        self._obeys = max(self._obeys, self.cluster.servers[coordinator])
        if running is None:
            self._is_confirmed = self.name not in self.cluster.clients
            return self._confirm()
        effects: list[Effect] = []
        counts = running.phase in (Phase.LATCH, Phase.COMMITS, Phase.PREPARE, Phase.SENT)
        if counts and running.plan.is_distributed and not running.is_join_of(self.name):
            effects += self._count_down(running)
        if running.phase is Phase.SENT and running.own is not None:
            effects += self._report(running)
        if self.is_coordinator and running.plan.is_distributed:
            request = SingleRequest(self.name, self.order, running.version)
            effects += [Send(node, request) for node in sorted(self.cluster.servers) if node != self.name]
        return effects

    def _enter(self, running: RunningExchange, phase: Phase, *effects: Effect) -> list[Effect]:
        running.phase = phase
        return [Entered(running.version, running.plan.type, phase), *effects]

    def _prepare(self, running: RunningExchange) -> list[Effect]:
        after = self.cluster_at(running.version)
        wanted = wanted_copies(self.name, after, self._affinity)
        return self._enter(running, Phase.PREPARE, Prepare(running.version, wanted))

    def _in(self, version: TopologyVersion, *phases: Phase) -> RunningExchange | None:
        """The running exchange if it is this one and in one of these phases: answers may come too late."""
        running = self.running
        if running is None or running.version != version or running.phase not in phases:
            return None
        return running

    def _gone_since_result(self, until: TopologyVersion) -> tuple[GoneServer, ...]:
        """Servers whose end the last result does not know, up to an event."""
        results = self.held.results
        if results is None:
            return ()
        return tuple(each for each in self._gone if results.version < each.version <= until)

    # Between exchanges

    def _on_state(self, message: SingleMessage) -> list[Effect]:
        if not self.is_coordinator:
            return []
        before = self.held
        self.held, reception = before.with_state(message, self.order)
        if reception is Reception.TAKEN:
            return self._publish(self.held.changes_after(before, self.order))
        asks = message.basis == before.basis and not message.maps
        if asks or reception in (Reception.REPEATED, Reception.GAP):
            return [Send(message.sender, self.held.update_message(self.order))]
        return []

    def _on_update(self, message: FullMessage) -> list[Effect]:
        """Take the coordinator's message between exchanges. Whoever has missed something asks for all, and is
        told again by the next tick that it has."""
        before = self.held
        self.held, is_missing = before.with_update(message)
        coordinator = self.cluster.coordinator
        if not is_missing or coordinator is None or self.is_coordinator:
            return []
        return [Send(coordinator, SingleMessage(self.name, self.order, None, before.basis))]

    def _tick_at_rest(self) -> list[Effect]:
        self._idle_ticks += 1
        stamps: list[Effect] = []
        if self.is_coordinator and self.held.has_updates:
            stamps = self._publish(self.held.stamps_message(self.order))
        return stamps + self._notify() + self._confirm() + self._ask_switch()

    def _confirm(self) -> list[Effect]:
        """A client may have been told of an exchange that no living server knows: it asks the new
        coordinator."""
        coordinator = self.cluster.coordinator
        if self._is_confirmed or coordinator is None or self.running is not None:
            return []
        version, basis = self.held.version, self.held.basis
        return [Send(coordinator, SingleMessage(self.name, self.order, version, basis, is_client=True))]

    def _notify(self) -> list[Effect]:
        """Tells of copies whose state the full map does not have yet."""
        news = {zone: item for zone, single in self._local.items() if (item := self.held.news_of(single))}
        coordinator = self.cluster.coordinator
        if not news or coordinator is None:
            return []
        maps = {zone: single for zone, (single, _) in news.items()}
        since = {zone: sequence for zone, (_, sequence) in news.items() if sequence is not None}
        message = SingleMessage(self.name, self.order, None, self.held.basis, maps, since=since)
        if not self.is_coordinator:
            return [Send(coordinator, message)]
        return [*self._on_state(message), *self._ask_switch()]

    def _publish(self, message: FullMessage) -> list[Effect]:
        """Send to everybody else, clients too."""
        others = sorted({*self.cluster.servers, *self.cluster.clients} - {self.name})
        return [Send(node, message) for node in others]

    def _ask_switch(self) -> list[Effect]:
        """One zone that is ready is enough: what is filled slowly, or not at all, is in the way of nobody else.
        Within a zone the others wait for it, for some time."""
        if not (self.is_coordinator and self.is_idle and self._asked != self.held.basis):
            return []
        if self._idle != self.held.basis:
            self._idle, self._idle_ticks = self.held.basis, 0
        waits = self._idle_ticks < PATIENCE_TICKS
        # Maps are values: the same ones give the same answer.
        judged: Mapping[ZoneId, FullMap] = self._judged if waits else {}
        self._judged = dict(self.held.maps)
        for zone, full in self.held.maps.items():
            if judged.get(zone) is not full and self.held.is_ready(zone, waits=waits):
                self._asked = self.held.basis
                return [AskSwitch(self.held.basis)]
        self._idle_ticks = self._idle_ticks if waits else 0
        return []
