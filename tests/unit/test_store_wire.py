"""Messages as bytes: what is written stays readable, and bytes that are no message are refused."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.store.core.store_messages import PeerPing, ReadRequest, ServerRoom, WriteRequest
from rebalance.store.shell.frame_connection import (
    FRAME_BYTES_MAX,
    LENGTH,
    TAGS,
    CloseCode,
    WireError,
    decode_frame,
    encode_frame,
)
from tests.fixtures.store_samples import MESSAGES

DATA = Path(__file__).parents[1] / "data"
GOLDEN = DATA / "store_wire_golden.tsv"
EARLIER = DATA / "store_wire_earlier.tsv"


def golden(path: Path = GOLDEN) -> dict[str, bytes]:
    """Frames by the names of samples. ``EARLIER``: of messages that have got fields since."""
    lines = path.read_text().splitlines()
    return {name: bytes.fromhex(frame) for name, frame in (line.split("\t") for line in lines)}


def body(frame: bytes) -> bytes:
    (length,) = LENGTH.unpack_from(frame)
    assert len(frame) == LENGTH.size + length
    return frame[LENGTH.size :]


def test_every_kind_of_message_has_a_sample_and_its_bytes() -> None:
    assert {type(message) for message in MESSAGES.values()} == set(TAGS.values())
    assert golden().keys() == MESSAGES.keys()


@pytest.mark.parametrize("name", MESSAGES)
def test_frames_are_written_as_they_were(name: str) -> None:
    assert encode_frame([MESSAGES[name]]).hex() == golden()[name].hex()


@pytest.mark.parametrize("name", MESSAGES)
def test_frames_that_were_written_are_read(name: str) -> None:
    assert decode_frame(body(golden()[name])) == [MESSAGES[name]]


@pytest.mark.parametrize("name", golden(EARLIER))
def test_frames_of_an_earlier_build_are_read(name: str) -> None:
    assert decode_frame(body(golden(EARLIER)[name])) == [MESSAGES[name]]


def test_a_frame_holds_many_messages_in_order() -> None:
    messages = list(MESSAGES.values())
    assert decode_frame(body(encode_frame(messages))) == messages


def test_fields_of_a_later_build_are_skipped_and_those_of_an_earlier_one_have_defaults() -> None:
    later = {"request": 1, "zone": 7, "partition": 3, "key": b"k", "colour": "blue"}
    assert decode_frame(msgspec.msgpack.encode([(3, later)])) == [ReadRequest(1, 7, 3, b"k")]
    earlier = {"request": 2, "write": "w", "zone": 7, "partition": 3, "changes": []}
    assert decode_frame(msgspec.msgpack.encode([(4, earlier)])) == [WriteRequest(2, "w", 7, 3, ())]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([(99, {})], "kind 99 is not known; accepted: messages of the kinds 1 to 22"),
        ([(3, {"request": 1})], "Object missing required field `zone`"),
        ([(12, {"has_room": "yes"})], "Expected `bool`, got `str`"),
        ([(5, {"request": 1, "code": "FINE"})], "Invalid enum value 'FINE'"),
        ([3], "Expected `array`, got `int`"),
        ({}, "Expected `array`, got `object`"),
    ],
)
def test_what_is_no_message_is_refused_by_name(content: object, text: str) -> None:
    with pytest.raises(WireError) as refused:
        decode_frame(msgspec.msgpack.encode(content))
    assert refused.value.code is CloseCode.UNREADABLE
    assert text in refused.value.accepted


def test_a_frame_that_nobody_would_take_is_not_written() -> None:
    batch = [ReadRequest(1, 7, 3, b"x" * (FRAME_BYTES_MAX // 2))] * 3
    with pytest.raises(WireError) as refused:
        encode_frame(batch)
    assert refused.value.code is CloseCode.FRAME_TOO_LARGE


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_refused(content: bytes) -> None:
    try:
        messages = decode_frame(content)
    except WireError:
        return
    assert all(type(message) in TAGS.values() for message in messages)


def test_damaged_frames_are_messages_or_refused() -> None:
    chance = random.Random(11)
    refused = 0
    for frame in golden().values():
        for _ in range(200):
            damaged = bytearray(body(frame))
            for _ in range(chance.randrange(1, 4)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            del damaged[chance.randrange(len(damaged) // 2, len(damaged) + 1) :]
            try:
                decode_frame(bytes(damaged))
            except WireError:
                refused += 1
    assert refused > 1_000


def test_nesting_without_an_end_is_refused() -> None:
    with pytest.raises(WireError):
        decode_frame(b"\x91" * 1_000_000)


def test_small_messages_are_small() -> None:
    assert len(encode_frame([PeerPing()])) < 25
    assert len(encode_frame([ServerRoom(True)])) < 25
