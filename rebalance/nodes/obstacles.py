"""Why a group's change is not asked for, or does not go on: in the words that are published."""

from __future__ import annotations

from collections.abc import Mapping

from rebalance.core.assignments import Assignments
from rebalance.core.records import MemberState
from rebalance.nodes.partition_view import NodePartitionView
from rebalance.ports.groups import FailureCode, GroupMember, ReconfigurationFailure


def obstacle(
    view: NodePartitionView, target: Assignments, urls: Mapping[str, str], members: tuple[GroupMember, ...]
) -> str:
    """Why a change to ``target`` is not asked for yet; empty when it can be (I3-028: not before every new
    member is reserved on a living node). Standing learners are not waited for (S241)."""
    listed = {each.peer_url for each in members}
    for name in target.peers:
        if urls.get(name) in listed:
            continue
        if name not in view.living:
            return f"NODE_DOWN: {name}"
        record = view.records.get(name)
        if record is not None and record.value.state is MemberState.FAILED and name not in urls:
            return f"MEMBER_FAILED: {name}: {record.value.reason}"
        if record is None or name not in urls or record.value.started:
            # Without a URL the record speaks of a mirror alone. Started and not listed: what is left of a
            # member that was removed. Its node reserves a new one.
            return f"MEMBER_NOT_RESERVED: {name}"
    return ""


def explained(view: NodePartitionView, issue: ReconfigurationFailure) -> str:
    """``CODE: node``, with the node's own state where that is the cause."""
    for name, found in view.records.items():
        if issue.peer_url and found.value.peer_url == issue.peer_url:
            if name not in view.living:
                return f"NODE_DOWN: {name}"
            if issue.code is FailureCode.MIRROR_NOT_RUNNING:
                mirror = found.value.mirror
                return ": ".join(filter(None, (issue.code.value, name, mirror.reason if mirror else "")))
            if found.value.state is MemberState.FAILED:
                return f"MEMBER_FAILED: {name}: {found.value.reason}"
            return f"{issue.code.value}: {name}"
    if issue.code in (FailureCode.REFUSED, FailureCode.TIMED_OUT, FailureCode.DEFECT):
        return f"{issue.code.value}: {issue.detail}"
    return str(issue.code.value)
