"""Watch over absent joiners, by the agent beside a leader: it measures their absence, and lets the move go on
without them in one transaction (M1, M3; ``core.joiners`` decides).

The group's list is not touched here. Pending is another one then, and the change towards it removes what is
left of the joiner; its node destroys nothing before it is published as removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import structlog

from rebalance.core.assignments.guarded_write import Observed
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.readable import RecordNotReadableError, Unreadable, read, readable
from rebalance.core.keyspace.records import MemberRecord, MemberRole, MemberState, NodeRecord
from rebalance.core.keyspace.txn import Compare, KeyValue, Txn, as_read
from rebalance.core.moves.joiners import JoinerTime, decide_on_joiners_gone, is_gone, joiners_of
from rebalance.metastore.guarded_update import read_together
from rebalance.nodes.copy_attempts import CopyRules
from rebalance.nodes.node_context import NodeContext
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.nodes.registration import HeardTime
from rebalance.ports.groups import GroupMember
from rebalance.ports.metastore import KeysUnreadableError

log = structlog.get_logger(__name__)


class JoinerWatch:
    """Watch over the joiners of the groups that one node leads. ``heard`` is the time by which joiners are
    judged."""

    def __init__(self, node: NodeContext, rules: Callable[[], CopyRules], heard: HeardTime) -> None:
        self._node = node
        self._rules = rules
        self._heard = heard
        self._times: dict[PartitionId, dict[str, JoinerTime]] = {}

    def forget(self, partition: PartitionId) -> None:
        """The next leader begins anew, and so does this one when it leads again."""
        self._times.pop(partition, None)

    def stalled(self, partition: PartitionId) -> tuple[str, ...]:
        """Joiners that live and copy, and have received nothing for as long as one that is gone may be."""
        now_s, timeout_s = self._heard.now_s, self._rules().joiner_s
        times = self._times.get(partition, {})
        return tuple(name for name, joiner in times.items() if joiner.is_stalled(now_s, timeout_s))

    async def look(self, view: NodePartitionView, members: Sequence[GroupMember]) -> bool:
        """Call it in each round while something is pending. True: pending is another one now. Raises
        MetastoreError."""
        if view.stable is None or view.pending is None or view.pending.value.forced:
            self.forget(view.partition)
            return False
        listed = {member.peer_url for member in members}
        before, now_s = self._times.get(view.partition, {}), self._heard.now_s
        times: dict[str, JoinerTime] = {}
        for name in joiners_of(view.stable.value, view.pending.value):
            record = view.records[name].value if name in view.records else None
            listed_here = record is not None and record.peer_url in listed
            times[name] = before.get(name, JoinerTime()).seen(
                now_s,
                is_gone=is_gone(name in view.living, record, is_listed=listed_here),
                is_listed=listed_here,
                failed=record is not None and record.state is MemberState.FAILED,
                copied=record.copied if record is not None else 0,
            )
        self._times[view.partition] = times
        timeout_s = self._rules().joiner_s
        over = [name for name, joiner in times.items() if joiner.is_over(now_s, timeout_s)]
        return bool(over) and await self._give_up(view.partition, over, members, view.living)

    async def _give_up(
        self,
        partition: PartitionId,
        names: Sequence[str],
        members: Sequence[GroupMember],
        living: Collection[str],
    ) -> bool:
        """The mirror is a hint: who is gone is read again, at the revision of the keys that are written."""
        keys, keyspace = self._node.keyspace.partition(partition), self._node.keyspace
        given_up_key = keyspace.given_up(partition)
        assigned = (keys.stable, keys.pending, keys.planned, keys.trigger, keys.lock, given_up_key)
        own = [(keyspace.node(name), keyspace.member(partition, name)) for name in names]
        keys_read = (*assigned, *(key for pair in own for key in pair))
        items, _ = await read_together(self._node.metastore, *keys_read)
        stable, pending, planned, trigger, lock, given_up = items[: len(assigned)]
        gone: dict[str, str] = {}
        guards: list[Compare] = []
        listed = {entry.peer_url for entry in members}
        try:
            for index, (name, pair) in enumerate(zip(names, own, strict=True)):
                node, member = items[len(assigned) + 2 * index :][:2]
                record = readable(member, MemberRecord.decode)
                is_listed = record is not None and record.peer_url in listed
                if is_gone(node is not None, record, is_listed=is_listed):
                    gone[name] = _incarnation(node)
                    guards += map(as_read, pair, (node, member))
            decision = decide_on_joiners_gone(
                Observed(keys, stable, pending, planned, trigger, lock),
                gone,
                given_up=given_up,
                given_up_key=given_up_key,
                holding={
                    entry.node for entry in members if entry.role is MemberRole.VOTER and entry.node in living
                },
            )
        except RecordNotReadableError as error:
            raise KeysUnreadableError(Unreadable(error.key, error.reason)) from error
        if decision.transaction is None:
            return False
        transaction = decision.transaction
        compares = (*transaction.compares, *guards)
        committed = await self._node.metastore.commit(Txn(compares, transaction.success))
        if committed.succeeded:
            log.warning(
                "joiners are gone, the move goes on without them",
                partition=str(partition),
                joiners=sorted(gone),
                outcome=decision.outcome.value,
            )
        return committed.succeeded


def _incarnation(node: KeyValue | None) -> str:
    """Empty: the node does not live, or its record cannot be read."""
    record = read(node, NodeRecord.decode)
    return record.incarnation if isinstance(record, NodeRecord) else ""
