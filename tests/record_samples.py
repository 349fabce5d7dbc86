"""One full value of every record kind of the keyspace, for tests that look at all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from catalog.core.zone import (
    ConsistencyMode,
    DistributionAlgorithm,
    Node,
    Origin,
    Strategy,
    Zone,
    ZoneId,
    ZoneIntent,
)
from rebalance.core.admission import Limits, Pause
from rebalance.core.assignments import Assignments
from rebalance.core.bandwidth import AdmissionRecord, TokenBuckets
from rebalance.core.change_lock import PendingLock, decode_lock, encode_lock
from rebalance.core.copy_sizes import CopySizes
from rebalance.core.data_nodes import DataNodes
from rebalance.core.drain import Drain
from rebalance.core.epoch import EpochRecord
from rebalance.core.failures import Failure, FailureRecord
from rebalance.core.guarded_write import decode_trigger, encode_trigger
from rebalance.core.isolation import FenceRecord
from rebalance.core.node_history import DataNodesHistory, HistoryEntry
from rebalance.core.operation import Note, Operation, OperationKind, OperationState
from rebalance.core.operation_progress import Tally
from rebalance.core.records import (
    ConfigurationRecord,
    ConfiguredMember,
    GivenUpJoiner,
    GivenUpRecord,
    GroupRecord,
    KeptRecord,
    LogPosition,
    MemberRecord,
    MemberRole,
    MemberState,
    MirrorRecord,
    NodeRecord,
    RestartRecord,
    Stage,
)
from rebalance.core.self_reports import EngineRecord, ProcessRecord, Trouble, WaitingZone
from rebalance.core.target import TargetPointer
from rebalance.core.topology import EventKind, Presence, Topology, TopologyEvent
from rebalance.core.topology_version import TopologyVersion
from rebalance.core.windows import Window
from rebalance.core.zone_map import ZoneMapPointer


class Record(Protocol):
    def encode(self) -> bytes: ...


@dataclass(frozen=True)
class Kind:
    """``decode`` reads what the samples' ``encode`` writes."""

    name: str
    decode: Callable[[bytes], Any]
    samples: tuple[Record, ...]


ZONE = Zone(ZoneId(7), "ORDERS", 4, 3, None, ("default", "fast"))
NODE = Node(
    "n1", (("region", "eu"), ("zone", "ä")), ("default", "fast"), 50, 1.5, "rack-1", (("fast", "memory"),)
)
KINDS = (
    Kind(
        "intent",
        ZoneIntent.decode,
        (
            ZoneIntent(3, ZONE),
            ZoneIntent(
                4,
                Zone(
                    *(ZoneId(8), 'q"é', 9, 2_147_483_647, 3, ("default",), 5, 6, "$..[?(@.a == 1)]"),
                    ConsistencyMode.HIGH_AVAILABILITY,
                    DistributionAlgorithm.BALANCED,
                    Strategy.CANCEL,
                ),
                True,
                Origin("alice", True, "new disks", "ALTER ZONE", 12, "8-12"),
            ),
        ),
    ),
    Kind(
        "node",
        NodeRecord.decode,
        (
            NodeRecord(NODE, "abc", 12),
            NodeRecord(Node("n2"), "def"),
            NodeRecord(Node("n2"), "ghi", 7, "3.5.16"),
        ),
    ),
    Kind(
        "data_nodes",
        DataNodes.decode,
        (
            DataNodes(("n1", "n2"), 2, 3),
            DataNodes(("n1",), 1, 1, asked=3),
            DataNodes(("n1", "n2"), 2, 3, "$..*", (1.0, 2.0), ("node:n1", "r"), ("n2",)),
        ),
    ),
    Kind(
        "data_nodes_history",
        DataNodesHistory.decode,
        (DataNodesHistory((HistoryEntry(5, ("n1",), 9), HistoryEntry(6, ("n1", "n2")))),),
    ),
    Kind("drain", Drain.decode, (Drain("alice", "old", 1_700_000_000_000),)),
    Kind(
        "topology",
        Topology.decode,
        (
            Topology(
                7,
                (
                    Presence(NODE, "abc", 5),
                    Presence(Node("n2"), "x", 6, 7, None),
                    Presence(Node("n3"), "y", 6, None, 9),
                ),
                (TopologyEvent(5, EventKind.JOINED, "n1", "abc"), TopologyEvent(9, EventKind.LEFT, "n3", "y")),
                4,
                99,
                ("n2",),
            ),
        ),
    ),
    Kind(
        "target_pointer",
        TargetPointer.decode,
        (
            TargetPointer(12, 3, 1, 4, 3, 3, ("n1", "n2", "n3"), "local", "rendezvous"),
            TargetPointer(14, 3, 1, 4, 1, 1, ("n1",), "local", "rendezvous", asked=3),
            TargetPointer(
                *(13, 3, 1, 4, 2, 2, ("n1", "n2"), "spark", "balanced"),
                *(((0.25, -0.25), (0.0, 0.0), (0.5, -0.5)), (1.0, 2.0), ("a", "b"), ("n2",)),
            ),
        ),
    ),
    Kind(
        "operation",
        Operation.decode,
        (
            Operation(OperationKind.CREATE_ZONE, ZoneId(7), "ORDERS", 12, 3, 1_700_000_000_000),
            Operation(
                *(
                    OperationKind.RESET,
                    ZoneId(7),
                    "ORDERS",
                    13,
                    3,
                    5,
                    "bob",
                    True,
                    "why",
                    "ALTER",
                    "REPLICAS 3",
                ),
                *(12, 2, 4, "7-12", OperationState.PAUSED, 6, 7, "PAUSED", Tally(4, 1, 100, 50, 8), (0, 2)),
                (Note(5, "operations.pause", "bob", "lunch"),),
            ),
        ),
    ),
    Kind(
        "assignments",
        Assignments.decode,
        (
            Assignments(("n2", "n1"), ("n3",)),
            Assignments(("n1",), (), 77, Strategy.UPDATE, True),
            Assignments(("n1",), (), 78, empty=True, absent=("n2", "n3")),
        ),
    ),
    Kind(
        "group",
        GroupRecord.decode,
        (
            GroupRecord("t", {"n1": "http://a"}),
            GroupRecord("t", {}, 5, "memory"),
            GroupRecord("t", {"n1": "http://a"}, 9, founding_revision=1_234),
        ),
    ),
    Kind(
        "configuration",
        ConfigurationRecord.decode,
        (
            ConfigurationRecord(
                3,
                "n1",
                Stage.JOINT,
                {
                    "n1": ConfiguredMember("a1", MemberRole.VOTER, "http://a"),
                    "n2": ConfiguredMember("a2", MemberRole.LEARNER, "http://b", True),
                },
                "NODE_DOWN: n2",
                4096,
                7,
            ),
            ConfigurationRecord(1, "n1", Stage.NONE),
        ),
    ),
    Kind("restart", RestartRecord.decode, (RestartRecord(True),)),
    Kind(
        "given up",
        GivenUpRecord.decode,
        (
            GivenUpRecord(12, {"n4": GivenUpJoiner(12, 1, "abc"), "n5": GivenUpJoiner(7, 3)}),
            GivenUpRecord(12),
        ),
    ),
    Kind("kept", KeptRecord.decode, (KeptRecord(12, "http://a", True),)),
    Kind(
        "limits",
        Limits.decode,
        (
            Limits(),
            Limits(joiner_s=5),
            Limits(ha_reset_s=20),
            Limits(
                *(
                    1,
                    2,
                    3,
                    4,
                    5,
                    Pause("alice", "why", 6, 7, "7-12"),
                    {ZoneId(7): Pause("bob", "", 8)},
                    True,
                    9,
                ),
                (Window.parse("22:00-04:00"), Window.parse("Sat,Sun 00:00-24:00")),
                *(False, 3, 60, 1000, 2000, True),
            ),
        ),
    ),
    Kind(
        "member",
        MemberRecord.decode,
        (
            MemberRecord(MemberState.RUNNING, "http://a", "http://b", True, "r"),
            MemberRecord(
                *(MemberState.FAILED, "http://a", "http://b", True, "r"),
                MirrorRecord(MemberState.RUNNING, "http://c", 12, "x"),
                LogPosition(5, 9, True),
            ),
            MemberRecord(
                *(MemberState.RUNNING, "http://a", "http://b", True, ""),
                MirrorRecord(MemberState.RUNNING, "http://c", 96, complete_revision=101, generation=7),
                LogPosition(5, 9, False, 102),
            ),
            MemberRecord(MemberState.STARTING, "http://a", "http://b", True, "r", copied=4_096),
        ),
    ),
    Kind(
        "zone_map",
        ZoneMapPointer.decode,
        (ZoneMapPointer(TopologyVersion(6, 1), 4, "c1", 1, 100, 1, 2, 3),),
    ),
    Kind("copy sizes", CopySizes.decode, (CopySizes(12, (0, 4_096, 1 << 40)), CopySizes(1, ()))),
    Kind(
        "process",
        ProcessRecord.decode,
        (ProcessRecord("node", (Trouble("mirrors", 2, "ValueError: x", True),), 3, "KeyError: y"),),
    ),
    Kind(
        "failures",
        FailureRecord.decode,
        (
            FailureRecord((Failure(ZoneId(7), 3, "REFUSED", "REFUSED: no", 2, 4, 1_000, 2_000),)),
            FailureRecord(),
        ),
    ),
    Kind(
        "engine",
        EngineRecord.decode,
        (EngineRecord("ready", "Spark"), EngineRecord("down", "no Java", 7, WaitingZone(4, 1_000))),
    ),
    Kind("fence", FenceRecord.decode, (FenceRecord("1a2b3c", 6_000),)),
    Kind("epoch", EpochRecord.decode, (EpochRecord(), EpochRecord(3, "the stores differ"))),
    Kind(
        "admission",
        AdmissionRecord.decode,
        (AdmissionRecord(3), AdmissionRecord(3, TokenBuckets(5, 1.5, {"n1": 2.5}))),
    ),
)

REVISIONS: tuple[tuple[str, Callable[[bytes], object], bytes], ...] = (
    ("trigger", decode_trigger, encode_trigger(12)),
    ("lock", decode_lock, encode_lock(PendingLock(12))),
    ("lock", decode_lock, encode_lock(PendingLock(12, "8e9e", 4))),
)
"""Records of one number or few; the tuple is name, reader and a value."""
