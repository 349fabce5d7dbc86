"""The coordinator's conclusion of an exchange: single maps in, full message out. Pure, and the same on every
node that draws it from the same maps.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from zlib import crc32

from catalog.core.zone import ZoneId
from rebalance.core.partition_maps.partition_map import FullMap, SingleMap, StorePosition, epoch_of, union
from rebalance.core.partition_maps.topology_version import (
    Cluster,
    DiscoveryEvent,
    TopologyVersion,
    Trigger,
    ZoneSpec,
)
from rebalance.exchange.core.exchange_messages import (
    FullMessage,
    GoneServer,
    Lists,
    Outcomes,
    PartitionOutcome,
    ResultRecord,
    ResultState,
    SingleMessage,
    changed_outcomes,
)
from rebalance.exchange.core.exchange_states import (
    affinity_strategy,
    assigns_states,
    detects_lost,
    keeps_primaries,
    waits_for_primaries,
)
from rebalance.exchange.core.late_affinity import (
    AffinityFunction,
    ZoneAffinity,
    ideal_lists,
    is_rebalanced,
    partition_outcome,
    zone_affinity,
)
from rebalance.exchange.core.partition_analysis import (
    NOTHING_SETTLED,
    Difference,
    ZoneOutcome,
    ZoneRules,
    analyse,
    settled_partitions,
)


@dataclass(frozen=True, slots=True)
class Collected:
    """All that a conclusion is drawn from. ``events``: that of the exchange and those merged into it, in order;
    ``cluster``: after the last of them. ``singles`` has every server of ``cluster``, the coordinator too.
    ``previous`` and ``lost``: of the exchange before.
    ``results``: what was committed until now, None where that is not done; ``gone``: servers that went since,
    in order. ``silent``: servers of ``cluster`` that died before they reported."""

    coordinator: str
    events: tuple[DiscoveryEvent, ...]
    cluster: Cluster
    singles: Mapping[str, SingleMessage]
    previous: Mapping[ZoneId, ZoneAffinity]
    lost: Mapping[ZoneId, frozenset[int]] = field(default_factory=dict)
    results: ResultState | None = None
    gone: tuple[GoneServer, ...] = ()
    silent: frozenset[str] = frozenset()

    @property
    def exchange(self) -> TopologyVersion:
        return self.events[0].version

    @property
    def joined(self) -> frozenset[str]:
        return frozenset(
            each.node for each in self.events if each.trigger is Trigger.NODE_JOINED and not each.is_client
        )

    @property
    def behind(self) -> frozenset[str]:
        """Servers that never heard of the last result: what they report is what was on their disk before it."""
        if self.results is None:
            return frozenset()
        return frozenset(node for node, each in self.singles.items() if each.basis != self.results.version)


@dataclass(frozen=True, slots=True)
class Conclusion:
    """``differences`` are shown, the rest is in the message."""

    message: FullMessage
    affinities: Mapping[ZoneId, ZoneAffinity]
    differences: tuple[Difference, ...]
    record: ResultRecord | None = None


def conclude(
    collected: Collected, function: AffinityFunction, committed: ResultRecord | None = None
) -> Conclusion:
    """Merge the single maps, decide states, find the effective assignments (PME-017, PME-073..076,
    PME-100..105).

    The result has the version of the last merged event, and nodes that left meanwhile are not in it.
    ``committed``: what a coordinator before this one concluded, and may have told somebody: it stands.
    """
    cluster, order = collected.cluster, collected.cluster.servers[collected.coordinator]
    zones = {
        zone_id: _conclude_zone(collected, zone, ideal_lists(function, zone, cluster), committed)
        for zone_id, zone in cluster.open_zones.items()
    }
    affinities = {zone_id: each.affinity for zone_id, each in zones.items()}
    maps = {zone_id: each.outcome.full for zone_id, each in zones.items()}
    settled = {zone_id: each.settled for zone_id, each in zones.items()}
    outcomes = {zone_id: each.committed for zone_id, each in zones.items() if each.committed is not None}
    outcomes |= _resting(collected, committed)
    message = FullMessage(
        collected.exchange,
        cluster.version,
        order,
        maps,
        positions={
            (zone_id, number): position
            for zone_id, each in zones.items()
            for number, position in each.outcome.positions.items()
        },
        reload=frozenset(copy for each in zones.values() for copy in each.outcome.reload),
        suppliers={copy: by for each in zones.values() for copy, by in each.outcome.suppliers.items()},
        joined_affinity={zone: each.effective for zone, each in affinities.items()} if collected.joined else {},
        affinity_diff={zone: each.diff for zone, each in affinities.items() if each.diff},
        ideal=_asked_for(collected, affinities),
        lost={zone: each.outcome.lost for zone, each in zones.items() if each.outcome.lost},
        rebalanced=is_rebalanced(affinities, maps, settled),
        outcomes=outcomes,
        digests={zone: digest_of(each.ideal) for zone, each in affinities.items()},
    )
    differences = tuple(each for zone in zones.values() for each in zone.outcome.differences)
    return Conclusion(message, affinities, differences, committed or _record(collected, outcomes))


@dataclass(frozen=True, slots=True)
class _ZoneConclusion:
    """``committed``: outcomes of its partitions, None where results are not kept."""

    outcome: ZoneOutcome
    affinity: ZoneAffinity
    settled: Mapping[int, StorePosition]
    committed: tuple[PartitionOutcome, ...] | None


def _conclude_zone(
    collected: Collected, zone: ZoneSpec, ideal: Lists, committed: ResultRecord | None
) -> _ZoneConclusion:
    cluster, order = collected.cluster, collected.cluster.servers[collected.coordinator]
    history = {node: each.history for node, each in collected.singles.items() if node in cluster.servers}
    rules = _rules(collected, zone)
    reported = _reported(collected, zone.zone_id, order)
    stands = committed.changed.get(zone.zone_id, {}) if committed is not None else None
    before = collected.previous.get(zone.zone_id)
    previous = before.effective if before is not None else tuple(each.effective for each in rules.outcomes)
    settled = NOTHING_SETTLED
    if stands is None:
        changed = rules.joined.union(rules.gone)
        settled = settled_partitions(reported, ideal, rules.outcomes, previous, changed, rules.lost)
    outcome = analyse(reported, ideal, rules, history, stands, settled)
    affinity = zone_affinity(
        outcome.full,
        ideal,
        previous,
        affinity_strategy(collected.events),
        collected.joined,
        keeps_primaries=keeps_primaries(collected.events),
        waits=waits_for_primaries(collected.events),
        settled=settled,
    )
    if stands is not None:
        affinity = _as_committed(affinity, rules, stands)
    kept = None
    if collected.results is not None:
        kept = _outcomes(collected, rules, outcome, affinity, stands, settled)
    return _ZoneConclusion(outcome, affinity, settled, kept)


def digest_of(lists: Lists) -> int:
    """CRC-32 of ideal lists: whether two nodes mean the same ones (PME-036)."""
    return crc32("\n".join(" ".join(nodes) for nodes in lists).encode())


def has_digests(message: FullMessage, cluster: Cluster, function: AffinityFunction) -> bool:
    """Check that ``function`` gives the ideal lists that the coordinator had."""
    return all(
        message.digests.get(zone_id) in (None, digest_of(ideal_lists(function, zone, cluster)))
        for zone_id, zone in cluster.open_zones.items()
    )


def _record(collected: Collected, outcomes: Outcomes) -> ResultRecord | None:
    if collected.results is None:
        return None
    changed = changed_outcomes(collected.results.outcomes, outcomes)
    return ResultRecord(collected.exchange, collected.cluster.version, collected.results.version, changed)


def _outcomes(
    collected: Collected,
    rules: ZoneRules,
    outcome: ZoneOutcome,
    affinity: ZoneAffinity,
    stands: Mapping[int, PartitionOutcome] | None,
    settled: Container[int],
) -> tuple[PartitionOutcome, ...]:
    """Return what is committed of a zone. Where a record stands, it is that; else what was before."""
    if stands is not None:
        return tuple(stands.get(number, rules.known(number)) for number in range(len(affinity.ideal)))
    return tuple(
        rules.known(number)
        if number in settled
        else partition_outcome(
            rules.outcome(number),
            affinity.ideal[number],
            affinity.effective[number],
            outcome.full.reports(number),
            epoch_of(collected.cluster.version),
            collected.joined,
            number in outcome.lost,
        )
        for number in range(len(affinity.ideal))
    )


def _resting(collected: Collected, committed: ResultRecord | None) -> Outcomes:
    """Return the outcomes of zones at rest, which are in no map. Until the exchange that closes a zone its
    primaries served, and waited for nobody who had gone: those go out of the sets. From then on sets hold, as
    nothing is written. Who joins meanwhile is told them: what it read when it started may be older."""
    cluster, results = collected.cluster, collected.results
    if results is None:
        return {}
    gone = tuple(each.name for each in collected.gone)
    outcomes = {}
    for zone_id in cluster.zones.keys() - cluster.open_zones.keys():
        known = results.outcomes.get(zone_id, ())
        is_closing = zone_id in collected.previous or any(_rests(event, zone_id) for event in collected.events)
        if is_closing and committed is not None:
            stands = committed.changed.get(zone_id, {})
            outcomes[zone_id] = tuple(stands.get(number, outcome) for number, outcome in enumerate(known))
        elif is_closing:
            outcomes[zone_id] = tuple(outcome.without(gone) for outcome in known)
        elif collected.joined or collected.behind:
            outcomes[zone_id] = known
    return outcomes


def _rests(event: DiscoveryEvent, zone: ZoneId) -> bool:
    named = {each.zone_id for each in event.zones}
    return event.trigger is Trigger.DEACTIVATE and (not named or zone in named)


def _as_committed(
    affinity: ZoneAffinity, rules: ZoneRules, stands: Mapping[int, PartitionOutcome]
) -> ZoneAffinity:
    effective = tuple(
        stands.get(number, rules.known(number)).effective for number in range(len(affinity.effective))
    )
    return ZoneAffinity(affinity.ideal, effective)


def affinities_of(
    message: FullMessage, cluster: Cluster, function: AffinityFunction | None, joins: bool = False
) -> dict[ZoneId, ZoneAffinity]:
    """The assignments that a node holds after ``message``: its own ideal lists with the message's differences.

    ``function`` is None on a node that cannot compute them: then the message must have brought them. A node
    that ``joins`` takes the effective lists as the coordinator computed them (PME-087).
    """
    found = {}
    for zone_id, zone in cluster.open_zones.items():
        ideal = message.ideal.get(zone_id, ()) if function is None else ideal_lists(function, zone, cluster)
        if joins and zone_id in message.joined_affinity:
            found[zone_id] = ZoneAffinity(ideal, message.joined_affinity[zone_id])
        else:
            found[zone_id] = ZoneAffinity.from_diff(ideal, message.affinity_diff.get(zone_id, {}))
    return found


def _reported(collected: Collected, zone: ZoneId, order: int) -> FullMap:
    """Servers that say nothing of the zone hold no copy of it."""
    version = collected.cluster.version
    singles = {}
    for node in collected.cluster.servers:
        message = collected.singles[node]
        single = message.maps.get(zone) or SingleMap(zone, node, message.basis, 0)
        singles[node] = replace(single, node=node, version=version)
    return union(zone, version, collected.coordinator, order, singles)


def _rules(collected: Collected, zone: ZoneSpec) -> ZoneRules:
    born = collected.cluster.born.get(zone.zone_id)
    joined = collected.joined | collected.behind
    # After all servers have gone nobody is there who could still lead: whoever went may come back.
    is_restart = joined >= collected.cluster.servers.keys()
    if zone.zone_id not in collected.previous:
        # It was at rest: whoever joined meanwhile did so without it.
        joined |= collected.cluster.servers.keys()
    return ZoneRules(
        assigns_states=any(map(assigns_states, collected.events)),
        detects_lost=any(map(detects_lost, collected.events)) and not is_restart,
        found=born is not None and any(event.version == born for event in collected.events),
        reset=any(_resets(event, zone.zone_id) for event in collected.events),
        dead=frozenset().union(*(event.dead for event in collected.events if _resets(event, zone.zone_id))),
        policy=zone.policy,
        lost=collected.lost.get(zone.zone_id, frozenset()),
        joined=joined,
        gone=tuple(each.name for each in collected.gone),
        failed=frozenset(each.name for each in collected.gone if not each.in_order),
        reported=frozenset(collected.cluster.servers) - collected.silent,
        outcomes=collected.results.outcomes.get(zone.zone_id, ()) if collected.results is not None else (),
    )


def _resets(event: DiscoveryEvent, zone: ZoneId) -> bool:
    return event.trigger is Trigger.LOSS_RESET and any(each.zone_id == zone for each in event.zones)


def _asked_for(collected: Collected, affinities: Mapping[ZoneId, ZoneAffinity]) -> Mapping[ZoneId, Lists]:
    if not any(each.wants_affinity for each in collected.singles.values()):
        return {}
    return {zone: each.ideal for zone, each in affinities.items()}
