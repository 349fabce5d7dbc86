"""Causes that keep a rebalancing from beginning: each with its code and a message that says what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulator.stealing.core.steal_checks import (
    NodeReport,
    RebalanceOptions,
    RefusalCode,
    ServerOptions,
    ServerState,
    check_nodes,
    check_options,
    check_rollback,
    check_target,
)
from simulator.stealing.core.steal_cluster import ClusterMetadata, StoreDefinition
from simulator.stealing.core.steal_plan import StealUnit
from simulator.stealing.core.steal_state_change import BatchId

CLUSTER = ClusterMetadata.of({0: (0, 2), 1: (1, 3)})
READY = (NodeReport(0, CLUSTER), NodeReport(1, CLUSTER))


@pytest.mark.row("VOL-027", "VOL-028", "VOL-029")
def test_nothing_is_wrong() -> None:
    """VOL-027, VOL-028, VOL-029: all nodes normal, no steal info, and either no read-only stores or all of them
    in the newest format."""
    assert check_nodes([0, 1], READY) == ()
    assert check_nodes([0, 1], [replace(each, ro_formats={"static": "ro2"}) for each in READY]) == ()


@pytest.mark.row("VOL-010", "VOL-027", "VOL-028", "VOL-029", "VOL-097")
@pytest.mark.parametrize(
    ("changed", "code", "message"),
    [
        (
            {"state": ServerState.REBALANCING_MASTER},
            RefusalCode.NOT_NORMAL,
            "node 1 is REBALANCING_MASTER: a rebalancing runs already; wait for it, or recover it",
        ),
        (
            {"steal_info": (StealUnit(1, 0, (("users", (2,)),)),)},
            RefusalCode.STEAL_INFO_NOT_EMPTY,
            "rebalancing.steal.info.key of node 1 is not []: stealer 1 <- donor 0: users [2]",
        ),
        (
            {"unfinished": BatchId("r1", 2)},
            RefusalCode.BATCH_UNFINISHED,
            "node 1 has not finished batch 2 of run r1: wait for it, or recover it",
        ),
        (
            {"ro_formats": {"static": "ro1"}},
            RefusalCode.OLD_STORAGE_FORMAT,
            "store static of node 1 has storage format ro1: ro2 is needed",
        ),
        (
            {"enable_rebalancing": False},
            RefusalCode.REBALANCING_DISABLED,
            "enable.rebalancing of node 1 is false: set it to true and start the node again",
        ),
    ],
    ids=["VOL-027", "VOL-028", "VOL-010", "VOL-029", "VOL-097"],
)
def test_a_node_that_is_not_ready(changed: dict[str, Any], code: RefusalCode, message: str) -> None:
    """VOL-010, VOL-027, VOL-028, VOL-029, VOL-097: refused, and nothing else is said."""
    (refusal,) = check_nodes([0, 1], [READY[0], replace(READY[1], **changed)])
    assert (refusal.code, refusal.message) == (code, message)


@pytest.mark.row("VOL-026")
def test_a_node_that_does_not_answer() -> None:
    """VOL-026: new nodes too must be there."""
    (refusal,) = check_nodes([0, 1, 2], READY)
    assert (refusal.code, refusal.message) == (
        RefusalCode.NODE_DOWN,
        "node 2 does not answer: start it first",
    )


@pytest.mark.row("VOL-025")
def test_nodes_that_do_not_agree() -> None:
    """VOL-025: there is no current metadata then."""
    other = ClusterMetadata.of({0: (0,), 1: (1, 2, 3)})
    (refusal,) = check_nodes([0, 1], [READY[0], NodeReport(1, other)])
    assert refusal.code is RefusalCode.METADATA_DIFFERS
    assert CLUSTER.encode() in refusal.message
    assert other.encode() in refusal.message


@pytest.mark.row("VOL-011", "VOL-012")
@pytest.mark.parametrize(
    ("target", "stores", "code", "message"),
    [
        (
            {0: (0,), 1: (1,)},
            [("users", 1)],
            RefusalCode.PARTITIONS_DIFFER,
            "the target has 2 partitions and the cluster 4: "
            "keys keep their partitions, so the number cannot change",
        ),
        (
            {0: (0, 1, 2, 3)},
            [("users", 1)],
            RefusalCode.NODE_NOT_IN_TARGET,
            "nodes [1] are not in the target: keep them there, with no partitions, to empty them",
        ),
        (
            {0: (0, 1, 2, 3), 1: ()},
            [("users", 2)],
            RefusalCode.TOO_FEW_NODES,
            "store users needs 2 nodes that own partitions: in the target there are 1",
        ),
        (
            {0: (0, 1, 2), 1: (3,)},
            [],
            RefusalCode.NO_STORES,
            "the cluster has no stores: there is nothing to move",
        ),
    ],
)
def test_targets_that_cannot_be_reached(
    target: dict[int, tuple[int, ...]], stores: list[tuple[str, int]], code: RefusalCode, message: str
) -> None:
    """VOL-011, VOL-012."""
    defined = [StoreDefinition(*each) for each in stores]
    first = check_target(CLUSTER, ClusterMetadata.of(target), defined, batch_size=9)[0]
    assert (first.code, first.message) == (code, message)


@pytest.mark.row("VOL-023")
def test_a_batch_that_leaves_too_few_nodes() -> None:
    """VOL-023: a smaller batch may pass through metadata that a larger one does not."""
    current, target = ClusterMetadata.of({0: (0,), 1: (1,)}), ClusterMetadata.of({0: (1,), 1: (0,)})
    (refusal,) = check_target(current, target, [StoreDefinition("users", 2)], batch_size=1)
    assert refusal.message == "store users needs 2 nodes that own partitions: after batch 1 there are 1"
    assert check_target(current, target, [StoreDefinition("users", 2)], batch_size=2) == ()


@pytest.mark.row("VOL-092")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (RebalanceOptions(max_parallel=0), "parallelism is 0: it must be 1 or more"),
        (RebalanceOptions(batch_size=-1), "batch size is -1: it must be 1 or more"),
    ],
)
def test_options_that_are_refused(options: RebalanceOptions, message: str) -> None:
    """VOL-092."""
    assert [each.message for each in check_options(options)] == [message]


@pytest.mark.row("VOL-091", "VOL-097", "VOL-098", "VOL-099", "VOL-100", "VOL-101")
def test_defaults_of_the_document() -> None:
    """VOL-091, VOL-097, VOL-098, VOL-099, VOL-100, VOL-101."""
    assert RebalanceOptions().max_parallel == 1
    assert check_options(RebalanceOptions()) == ()
    defaults = ServerOptions()
    assert defaults.enable_rebalancing
    assert (defaults.max_attempts, defaults.max_parallel_stores) == (3, 3)
    assert defaults.timeout_s == 864_000
    assert defaults.optimization


@pytest.mark.row("VOL-093", "VOL-094")
def test_rollback_needs_the_donors_data() -> None:
    """VOL-093, VOL-094."""
    assert check_rollback([]) == ()
    (refusal,) = check_rollback([2, 0])
    assert refusal.code is RefusalCode.DONOR_DATA_DELETED
    assert refusal.message.startswith("moved data were deleted from the donors [0, 2]: there is nothing")
