"""The few requests and answers of etcd that puts and gets of a key are made of, as protobuf's bytes.

Tests bind them to what the server sends and reads (tests/data/etcd_client_golden.tsv).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

TXN, LEASE_GRANT = "/etcdserverpb.KV/Txn", "/etcdserverpb.Lease/LeaseGrant"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
CREATE, MOD, VALUE = 1, 2, 3
"""Targets of a comparison: a key's first revision, its last one, its value."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    value: bytes
    mod_revision: int


@dataclass(frozen=True, slots=True)
class TxnAnswer:
    """``found``: of each read in its order, the key or nothing."""

    succeeded: bool
    revision: int
    found: tuple[KeyValue | None, ...]


def txn(compares: Sequence[bytes], success: Sequence[bytes], failure: Sequence[bytes]) -> bytes:
    parts = ((1, compares), (2, success), (3, failure))
    return b"".join(_bytes(number, each) for number, operations in parts for each in operations)


def absent(key: bytes) -> bytes:
    return _compare(CREATE, key, _varint_field(5, 0))


def unchanged(key: bytes, revision: int) -> bytes:
    return _compare(MOD, key, _varint_field(6, revision))


def has_value(key: bytes, value: bytes) -> bytes:
    return _compare(VALUE, key, _bytes(7, value))


def get(key: bytes, *, keys_only: bool = False) -> bytes:
    return _bytes(1, _bytes(1, key) + (_varint_field(8, 1) if keys_only else b""))


def put(key: bytes, value: bytes, lease: int = 0) -> bytes:
    filled = _bytes(2, value) if value else b""
    return _bytes(2, _bytes(1, key) + filled + (_varint_field(3, lease) if lease else b""))


def put_if_absent(key: bytes, value: bytes, lease: int) -> bytes:
    """A transaction of its own within another one."""
    return _bytes(4, txn([absent(key)], [put(key, value, lease)], []))


def delete(key: bytes) -> bytes:
    return _bytes(3, _bytes(1, key))


def lease_grant(seconds: int) -> bytes:
    return _varint_field(1, seconds)


def granted_lease(answer: bytes) -> int:
    return _number(dict(_fields(answer)), 2)


def txn_answer(answer: bytes) -> TxnAnswer:
    """Raises ValueError for what is none."""
    fields = list(_fields(answer))
    named = dict(fields)
    responses = [dict(_fields(_part(value))) for number, value in fields if number == 3]
    found = tuple(_found(_part(each[1])) for each in responses if 1 in each)
    header = dict(_fields(_part(named.get(1, b""))))
    return TxnAnswer(bool(_number(named, 2)), _number(header, 3), found)


def _found(answer: bytes) -> KeyValue | None:
    for number, value in _fields(answer):
        if number == 2:
            fields = dict(_fields(_part(value)))
            return KeyValue(_part(fields.get(5, b"")), _number(fields, 3))
    return None


def _compare(target: int, key: bytes, wanted: bytes) -> bytes:
    """Encode a comparison for equality, which is protobuf's 0 and left out."""
    return _varint_field(2, target) + _bytes(3, key) + wanted


def _varint_field(number: int, value: int) -> bytes:
    return _varint(number << 3 | VARINT) + _varint(value)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values, in their order. Raises ValueError."""
    place = 0
    while place < len(message):
        head, place = _read_varint(message, place)
        kind = head & 7
        if kind == VARINT:
            value, place = _read_varint(message, place)
            yield head >> 3, value
            continue
        length = {FIXED64: 8, FIXED32: 4}.get(kind)
        if length is None:
            if kind != BYTES:
                raise ValueError(f"no field of protobuf: {head}")
            length, place = _read_varint(message, place)
        if place + length > len(message):
            raise ValueError("a message of protobuf that is cut off")
        yield head >> 3, message[place : place + length]
        place += length


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            raise ValueError("a message of protobuf that is cut off")
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("no number of protobuf")


def _number(fields: dict[int, int | bytes], number: int) -> int:
    value = fields.get(number, 0)
    if not isinstance(value, int):
        raise ValueError(f"field {number} is no number")
    return value


def _part(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number in the place of a part")
    return value
