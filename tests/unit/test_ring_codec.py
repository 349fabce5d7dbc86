"""Values of the keys below ``exchange/``: what was written stays readable, and what is no value is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog.core.codec import RecordNotReadableError
from catalog.core.zone import LossPolicy, ZoneId
from rebalance.core.partition_maps.partition_map import StorePosition
from rebalance.core.partition_maps.topology_version import (
    Cluster,
    DiscoveryEvent,
    TopologyVersion,
    Trigger,
    ZoneSpec,
)
from rebalance.exchange.core.exchange_messages import GoneServer, PartitionOutcome
from rebalance.exchange.core.exchange_states import ExchangeType, Phase
from rebalance.store.core.exchange_record import (
    EventName,
    ExchangeRecord,
    PhaseTime,
    decode_exchange,
    encode_exchange,
)
from rebalance.store.core.ring_records import (
    CHUNK_ROWS,
    FoldHead,
    ResultHead,
    RingRecord,
    RingState,
    ServerBeat,
    decode_beat,
    decode_chunk,
    decode_event,
    decode_fold,
    decode_result,
    decode_ring,
    encode_beat,
    encode_chunk,
    encode_event,
    encode_fold,
    encode_result,
    encode_ring,
    outcome_chunks,
)

V3, V31 = TopologyVersion(3), TopologyVersion(3, 1)
ZONE = ZoneSpec(ZoneId(7), 4, 3, LossPolicy.READ_WRITE_SAFE, targets=99)
OUTCOME = PartitionOutcome(("n1", "n2"), ("n3",), StorePosition(5, 6), 5, ("n1", "n2", "n3"), True)
ROW = (ZoneId(7), 3, OUTCOME)

JOINED = RingRecord(4, DiscoveryEvent(V3, Trigger.NODE_JOINED, "n3", 4), "a1b2")
ZONE_STARTED = RingRecord(5, DiscoveryEvent(V31, Trigger.ZONE_START, zones=(ZONE,)))
BASELINE = RingRecord(6, DiscoveryEvent(V31, Trigger.BASELINE_SET, baseline=frozenset(("n2", "n1")), basis=V3))
STATE = RingState(
    5,
    Cluster(V31, {"n3": 4}, {"c": 5}, frozenset(("n3",)), {ZONE.zone_id: ZONE}, {ZONE.zone_id: V31}, False),
    {"n3": "a1b2"},
    (GoneServer(V3, "n1"), GoneServer(V31, "n2", in_order=True)),
)

LOGGED = ExchangeRecord(
    EventName(V3, Trigger.NODE_JOINED, "n3"),
    ExchangeType.ALL,
    "n1",
    (PhaseTime(Phase.INIT, 5, 6), PhaseTime(Phase.COLLECT, 6)),
    ("n2",),
    (EventName(V31, Trigger.ZONE_START, zones=(ZoneId(7),)),),
)
SPEC = '{"zone_id":7,"partitions":4,"copies":3,"policy":"READ_WRITE_SAFE","targets":99}'
ROW_TEXT = '[7,3,["n1","n2"],["n3"],5,6,5,["n1","n2","n3"],true]'

SAMPLES: list[tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any], str]] = [
    (
        *(JOINED, encode_event, decode_event),
        '{"v":1,"number":4,"event":{"version":"3.0","trigger":"NODE_JOINED","node":"n3","order":4},'
        '"incarnation":"a1b2"}',
    ),
    (
        *(ZONE_STARTED, encode_event, decode_event),
        f'{{"v":1,"number":5,"event":{{"version":"3.1","trigger":"ZONE_START","zones":[{SPEC}]}}}}',
    ),
    (
        *(BASELINE, encode_event, decode_event),
        '{"v":1,"number":6,"event":{"version":"3.1","trigger":"BASELINE_SET","baseline":["n1","n2"],"basis":"3.0"}}',
    ),
    (
        *(STATE, encode_ring, decode_ring),
        '{"v":1,"number":5,"cluster":{"version":"3.1","servers":{"n3":4},"clients":{"c":5},"baseline":["n3"],'
        f'"zones":[{SPEC}],"born":[[7,"3.1"]],"active":false}},"incarnations":{{"n3":"a1b2"}},"gone":[["3.0","n1"],["3.1","n2",true]]}}',
    ),
    (
        *(ResultHead(V3, V31, V3, rows=(ROW,)), encode_result, decode_result),
        f'{{"v":1,"exchange":"3.0","version":"3.1","previous":"3.0","rows":[{ROW_TEXT}]}}',
    ),
    (
        *(ResultHead(V3, V31, V3, "a1b2", 2), encode_result, decode_result),
        '{"v":1,"exchange":"3.0","version":"3.1","previous":"3.0","parts":"a1b2","chunks":2}',
    ),
    ((ROW,), encode_chunk, decode_chunk, f'{{"v":1,"rows":[{ROW_TEXT}]}}'),
    (
        *(ServerBeat("10.0.0.1", 7001, V31), encode_beat, decode_beat),
        '{"v":1,"host":"10.0.0.1","port":7001,"finished":"3.1"}',
    ),
    (
        *(RingState(1, Cluster(V3, resting=frozenset((ZoneId(9), ZoneId(7))))), encode_ring, decode_ring),
        '{"v":1,"number":1,"cluster":{"version":"3.0","servers":{},"clients":{},"baseline":null,"zones":[],"born":[],'
        '"active":true,"resting":[7,9]},"incarnations":{},"gone":[]}',
    ),
    (
        *(LOGGED, encode_exchange, decode_exchange),
        '{"v":1,"cause":{"version":"3.0","trigger":"NODE_JOINED","node":"n3"},"type":"ALL","coordinator":"n1",'
        '"phases":[{"phase":"INIT","begun_ms":5,"ended_ms":6},{"phase":"COLLECT","begun_ms":6,"ended_ms":null}],'
        '"awaited":["n2"],"merged":[{"version":"3.1","trigger":"ZONE_START","zones":[7]}],"version":null}',
    ),
    (
        *(ServerBeat("10.0.0.1", 7001, V31, ("n2",)), encode_beat, decode_beat),
        '{"v":1,"host":"10.0.0.1","port":7001,"finished":"3.1","cut_from":["n2"]}',
    ),
    (
        *(ServerBeat("10.0.0.1", 7001, V31, ttl_ms=9_000), encode_beat, decode_beat),
        '{"v":1,"host":"10.0.0.1","port":7001,"finished":"3.1","ttl_ms":9000}',
    ),
    (
        *(FoldHead(V31, "00000000000000000099", 2), encode_fold, decode_fold),
        '{"v":1,"version":"3.1","parts":"00000000000000000099","chunks":2}',
    ),
]


@pytest.mark.parametrize(("value", "encode", "decode", "text"), SAMPLES)
def test_values_are_written_as_they_were_and_read_again(
    value: Any, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], text: str
) -> None:
    assert encode(value).decode() == text
    assert decode(text.encode()) == value


@pytest.mark.parametrize(("value", "encode", "decode", "text"), SAMPLES)
def test_fields_of_a_later_build_are_skipped_and_later_formats_are_not_read(
    value: Any, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], text: str
) -> None:
    assert decode(text.replace('{"v":1,', '{"v":1,"colour":"blue",', 1).encode()) == value
    with pytest.raises(RecordNotReadableError, match="format 2 is not known"):
        decode(text.replace('{"v":1,', '{"v":2,', 1).encode())


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (ROW_TEXT, "[7,3]"),
        (ROW_TEXT, ROW_TEXT.replace("true", "1")),
        (ROW_TEXT, ROW_TEXT.replace("[7,3", "[7,-3")),
        (ROW_TEXT, ROW_TEXT.replace('"n3"', "3", 1)),
        ('"3.1"', '"3"'),
    ],
)
def test_what_is_no_result_is_refused(text: str, wrong: str) -> None:
    document = SAMPLES[4][3]
    assert text in document
    with pytest.raises(RecordNotReadableError):
        decode_result(document.replace(text, wrong).encode())


def test_large_results_are_cut_into_chunks_and_put_together_again() -> None:
    changed = {ZoneId(zone): dict.fromkeys(range(1500), OUTCOME) for zone in (1, 2, 3)}
    chunks = list(outcome_chunks(changed))
    assert [len(chunk) for chunk in chunks] == [CHUNK_ROWS, CHUNK_ROWS, 500]
    head = ResultHead(V3, V31, V3, "a1b2", len(chunks))
    assert head.record([row for chunk in chunks for row in chunk]).changed == changed
