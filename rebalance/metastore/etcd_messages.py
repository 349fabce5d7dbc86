"""Transactions, keys and events to etcd's protocol messages and back: pure translation."""

from __future__ import annotations

from typing import Any

from aetcd import rpc

from rebalance.core.keyspace.txn import (
    Compare,
    CompareOp,
    Delete,
    DeleteRange,
    Get,
    KeyValue,
    Operation,
    Put,
    Txn,
    TxnResult,
)
from rebalance.ports.metastore import KeyEvent, WatchBatch

_RESULTS = {
    CompareOp.EQUAL: rpc.Compare.EQUAL,
    CompareOp.LESS: rpc.Compare.LESS,
    CompareOp.GREATER: rpc.Compare.GREATER,
}

_WITH_ANSWERS = frozenset((Get, Txn))


def range_end(prefix: str) -> bytes:
    """The first key after all keys with this prefix. Raises ValueError for a prefix without an end."""
    raw = bytearray(prefix.encode())
    while raw:
        if raw[-1] < 0xFF:
            raw[-1] += 1
            return bytes(raw)
        raw.pop()
    raise ValueError("an empty prefix has no end")


def key_text(key: bytes) -> str:
    """Ours are UTF-8. Others are nobody's, and must end nobody: they are shown with escapes."""
    return key.decode(errors="backslashreplace")


def key_value(kv: Any) -> KeyValue:
    return KeyValue(key_text(kv.key), kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def txn_request(txn: Txn) -> Any:
    """Nested messages are filled in place: building them apart and copying them in takes four times as long."""
    message = rpc.TxnRequest()
    _fill_txn(message, txn)
    return message


def _fill_txn(message: Any, txn: Txn) -> None:
    for compare in txn.compares:
        _fill_compare(message.compare.add(), compare)
    for operation in txn.success:
        _fill_operation(message.success.add(), operation)
    for operation in txn.failure:
        _fill_operation(message.failure.add(), operation)


def _fill_compare(message: Any, compare: Compare) -> None:
    message.key, message.result = compare.key.encode(), _RESULTS[compare.op]
    if compare.below:
        message.range_end = range_end(compare.key)
    message.target, message.mod_revision = rpc.Compare.MOD, compare.operand


def _fill_operation(message: Any, operation: Operation) -> None:
    match operation:
        case Put(key, value, lease):
            put = message.request_put
            put.key, put.value, put.lease = key.encode(), value, lease
        case Txn():
            # An empty transaction is one too.
            message.request_txn.SetInParent()
            _fill_txn(message.request_txn, operation)
        case Delete(key):
            message.request_delete_range.key = key.encode()
        case DeleteRange(start, end):
            keys = message.request_delete_range
            keys.key, keys.range_end = start.encode(), end.encode()
        case Get(key):
            message.request_range.key = key.encode()


def txn_result(txn: Txn, reply: Any, revision: int = 0) -> TxnResult:
    """``revision`` comes from the outermost reply: inner ones may leave it empty."""
    revision, term = revision or reply.header.revision, reply.header.raft_term
    succeeded = reply.succeeded
    branch = txn.success if succeeded else txn.failure
    if _WITH_ANSWERS.isdisjoint(map(type, branch)):
        return TxnResult(succeeded, revision, (None,) * len(branch), term)
    responses: list[TxnResult | tuple[KeyValue, ...] | None] = []
    for operation, response in zip(branch, reply.responses, strict=True):
        if isinstance(operation, Txn):
            responses.append(txn_result(operation, response.response_txn, revision))
        elif isinstance(operation, Get):
            responses.append(tuple(key_value(kv) for kv in response.response_range.kvs))
        else:
            responses.append(None)
    return TxnResult(succeeded, revision, tuple(responses), term)


def watch_request(prefix: str, start_revision: int) -> Any:
    create = rpc.WatchCreateRequest(
        key=prefix.encode(), range_end=range_end(prefix), start_revision=start_revision
    )
    return rpc.WatchRequest(create_request=create)


def watch_batch(reply: Any) -> WatchBatch:
    events = tuple(
        KeyEvent(
            key_text(event.kv.key),
            None if event.type == rpc.Event.DELETE else key_value(event.kv),
            event.kv.mod_revision,
        )
        for event in reply.events
    )
    return WatchBatch(max(event.mod_revision for event in events), events)
