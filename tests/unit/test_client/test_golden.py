"""The client's hash and codecs are those of the server: both are compared with the same files.

``key_hash_golden.tsv``: keys as JSON, and their hashes. ``etcd_client_golden.tsv``: what is asked of a member
and answered by it in each case, in hexadecimal. ``store_client_golden.tsv``: frames that a client sends.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.api.kv import VERSION_HEADER
from app.contract.keys import ABANDONS_FIELD, TIMEOUT_FIELD, TIMEOUT_MAX_S
from app.edge.headers import VERSION_FIELD
from catalog.core.zone import DEFAULT_ENGINE, STORE_ENGINE, ZoneId
from rebalance.core.keyspace import write_terms
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.keyspace.write_terms import WriteTerms
from rebalance.core.partition_maps.partition_map import NO_RECORD, StorePosition
from rebalance.data import store_attempts
from rebalance.groups.calls import key_hash, key_text
from rebalance.groups.calls.data_client import AppliedWrite, Connections, PartitionClient
from rebalance.groups.calls.group_guard import WrongGenerationError
from rebalance.ports.groups import ConditionFailedError as ServersConditionFailedError
from rebalance.store.core import store_messages
from rebalance.store.core.log_records import KeyChange, WriteId
from rebalance.store.shell import frame_connection
from tests.fixtures.scripted_etcd import ScriptedEtcd, scripted_etcd
from zonekeeper_client import (
    ConditionFailedError,
    routing_maps,
    servers,
    store_servers,
    version,
    writes,
)
from zonekeeper_client.etcd_members import EtcdMembers
from zonekeeper_client.routing_maps import Partition
from zonekeeper_client.writes import AttemptFailedError, Row, Write, Written

DATA = Path(__file__).parents[2] / "data"


def lines(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (DATA / name).read_text().splitlines()]


@pytest.mark.parametrize("hash_of", [key_hash.key_hash, routing_maps.key_hash])
def test_keys_lie_where_they_lay(hash_of: Callable[[str], int]) -> None:
    golden = lines("key_hash_golden.tsv")
    assert [hash_of(json.loads(key)) for key, _ in golden] == [int(expected) for _, expected in golden]


def test_names_and_bounds() -> None:
    assert routing_maps.KEY_HASH_NAME == key_hash.KEY_HASH_NAME
    assert (routing_maps.GROUPS_ENGINE, routing_maps.STORE_ENGINE) == (DEFAULT_ENGINE, STORE_ENGINE)
    assert (writes.KEY_CHARS_MAX, writes.OPERATION_ID_PATTERN) == (
        key_text.KEY_CHARS_MAX,
        key_text.OPERATION_ID_PATTERN,
    )
    assert writes.ABANDONED_MAX == write_terms.ABANDONED_MAX
    assert (servers.ABANDONS_FIELD, version.VERSION_FIELD) == (ABANDONS_FIELD, VERSION_FIELD)
    assert (servers.TIMEOUT_FIELD, servers.TIMEOUT_MAX_S) == (TIMEOUT_FIELD, TIMEOUT_MAX_S)
    assert routing_maps.MAP_VERSION_FIELD == VERSION_HEADER
    assert (store_servers.WIRE_FORMAT, store_servers.FRAME_BYTES_MAX) == (
        store_messages.WIRE_FORMAT,
        frame_connection.FRAME_BYTES_MAX,
    )


# Members of groups

P0, PARTITION = PartitionId(ZoneId(7), 3), Partition(7, 3)
LIMIT_S = 30.0


async def of_the_server(member: ScriptedEtcd, case: str) -> Any:
    connections = Connections()
    client = PartitionClient(P0, connections)
    url = member.url
    try:
        match case:
            case "put":
                return await client.put(url, b"key", b"value", "op-1", LIMIT_S, 0)
            case "put on terms":
                terms = WriteTerms(if_revision=300, abandons=("op-2", "op-3"))
                return await client.put(url, b"key", b"", "op-4", LIMIT_S, 8, terms)
            case "delete that has been done":
                return await client.put(url, b"key", None, "op-5", LIMIT_S)
            case "put of a key that exists":
                return await client.put(url, b"key", b"v", "op-6", LIMIT_S, 0, WriteTerms(if_absent=True))
            case _:
                return await client.get(url, "schlüssel".encode(), LIMIT_S, 8)
    finally:
        await connections.close()


async def of_the_client(member: ScriptedEtcd, case: str) -> Any:
    client = EtcdMembers(lambda url: True, None)
    url = member.url
    try:
        match case:
            case "put":
                return await client.put(url, PARTITION, 0, Write("key", "value", "op-1"), LIMIT_S)
            case "put on terms":
                write = Write("key", "", "op-4", if_revision=300, abandons=("op-2", "op-3"))
                return await client.put(url, PARTITION, 8, write, LIMIT_S)
            case "delete that has been done":
                return await client.put(url, PARTITION, None, Write("key", None, "op-5"), LIMIT_S)
            case "put of a key that exists":
                write = Write("key", "v", "op-6", if_absent=True)
                return await client.put(url, PARTITION, 0, write, LIMIT_S)
            case _:
                return await client.get(url, PARTITION, 8, "schlüssel", LIMIT_S)
    finally:
        await client.close()


CASES: dict[str, tuple[object, object]] = {
    "put": (AppliedWrite(1234), Written(1234)),
    "put on terms": (AppliedWrite(1234), Written(1234)),
    "delete that has been done": (AppliedWrite(1200, repeated=True), Written(1200, repeated=True)),
    "put of a key that exists": (ServersConditionFailedError, ConditionFailedError),
    "get": (b"value", Row(b"value", 1200)),
    "get of a later generation": (WrongGenerationError, AttemptFailedError),
}
"""Results of each answer: by the server's own client, and by the distribution's."""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("asked", [of_the_server, of_the_client])
async def test_members_are_asked_in_the_same_bytes(asked: Any, case: str) -> None:
    """And what they answer means the same."""
    golden = [line[1:] for line in lines("etcd_client_golden.tsv") if line[0] == case]
    answers = [bytes.fromhex(answer) for _, _, answer in golden]
    expected = CASES[case][asked is of_the_client]
    async with scripted_etcd(answers) as member:
        if isinstance(expected, type):
            with pytest.raises(expected):
                await asked(member, case)
        else:
            found = await asked(member, case)
            assert (found.value if case == "get" and asked is of_the_server else found) == expected
    assert [(method, request.hex()) for method, request in member.requests] == [
        (method, request) for method, request, _ in golden
    ]


# Store servers

CHANGES = (store_servers.KeyChange(b"key", b"value"),)
FRAMES: dict[str, tuple[store_servers.Sent, object]] = {
    "hello": (store_servers.Hello(), store_messages.StoreHello("", 0, "")),
    "read": (
        store_servers.ReadRequest(1, 7, 3, b"key", 1500),
        store_messages.ReadRequest(1, ZoneId(7), 3, b"key", 1500),
    ),
    "write": (
        store_servers.WriteRequest(2, "op-1", 7, 3, CHANGES, (), 1500, ()),
        store_messages.WriteRequest(
            2, WriteId("op-1"), ZoneId(7), 3, (KeyChange(b"key", b"value"),), left_ms=1500
        ),
    ),
    "delete on terms": (
        store_servers.WriteRequest(
            *(3, "op-2", 7, 3, (store_servers.KeyChange(b"key", None),)),
            *((store_servers.KeyRead(b"key", (5 << 32 | 1, 9)),), 20, ("op-1",)),
        ),
        store_messages.WriteRequest(
            *(3, WriteId("op-2"), ZoneId(7), 3, (KeyChange(b"key", None),)),
            reads=(store_messages.KeyRead(b"key", StorePosition(5 << 32 | 1, 9)),),
            left_ms=20,
            abandons=(WriteId("op-1"),),
        ),
    ),
}


def test_store_servers_read_what_the_client_sends() -> None:
    golden = {name: bytes.fromhex(frame) for name, frame in lines("store_client_golden.tsv")}
    assert golden.keys() == FRAMES.keys()
    for name, (sent, read) in FRAMES.items():
        assert store_servers.encode_frame(sent) == golden[name], name
        assert frame_connection.decode_frame(golden[name][frame_connection.LENGTH.size :]) == [read], name
    assert StorePosition(*store_servers.NO_ROW) == NO_RECORD
    assert store_servers.FINAL.keys() == {code.label for code in store_attempts.FINAL}


def test_the_client_reads_what_store_servers_send() -> None:
    """Frames are those of the server's own codec, of earlier builds too; other kinds are skipped."""
    read: dict[str, list[store_servers.Message]] = {}
    for name in ("store_wire_golden.tsv", "store_wire_earlier.tsv"):
        for kind, frame in lines(name):
            read.setdefault(kind, []).extend(store_servers.decode_frame(bytes.fromhex(frame)[4:]))
    done = store_servers.StoreAnswer(2, "DONE", b"\xff", (5 << 32 | 1, 2), True, "n1", "text")
    assert read["answer"] == [done, done]
    refused = store_servers.StoreAnswer(3, "NOT_PRIMARY", primary="n2")
    assert read["answer refused"] == [refused, refused]
    assert read["hello"] == [store_servers.Hello("n1", 4, "a1b2")]
    assert read["refused"] == [store_servers.Refused("REMOVED", "a new incarnation")]
    assert read["append"] == []
    for broken in (b"", b"\xc1", bytes.fromhex("91920581a772657175657374a178")):
        with pytest.raises(ValueError, match="not a message of wire format 1"):
            store_servers.decode_frame(broken)
