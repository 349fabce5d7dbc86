"""The record of what a group has committed, as the agent beside its leader publishes it."""

from __future__ import annotations

from dataclasses import replace

from rebalance.core.group_steps import stage_of
from rebalance.core.records import ConfigurationRecord, ConfiguredMember, MemberRole
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.ports.groups import GroupMember


def configuration_of(
    view: NodePartitionView, leader: str, term: int, members: tuple[GroupMember, ...], reason: str
) -> ConfigurationRecord:
    stable = view.stable.value.peers if view.stable else ()
    pending = view.pending.value.peers if view.pending else None
    voters = [each.node for each in members if each.role is MemberRole.VOTER]
    learners = [each.node for each in members if each.role is MemberRole.LEARNER]
    return ConfigurationRecord(
        term=term,
        leader=leader,
        stage=stage_of(voters, learners, stable, pending),
        members={
            each.node: ConfiguredMember(each.member_id, each.role, each.peer_url, each.leaving)
            for each in members
        },
        reason=reason,
        generation=view.group.value.generation if view.group else 0,
    )


def kept_unknown(record: ConfigurationRecord, known: ConfigurationRecord) -> ConfigurationRecord:
    """With what a later build has written into the record that it replaces."""
    members = {
        name: replace(each, unknown=before.unknown)
        if (before := known.members.get(name)) is not None
        and before.unknown
        and before.member_id == each.member_id
        else each
        for name, each in record.members.items()
    }
    return replace(record, members=members, unknown=known.unknown)
