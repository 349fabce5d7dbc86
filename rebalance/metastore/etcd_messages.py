"""Transactions, keys and events to etcd's protocol messages and back: pure translation."""

from __future__ import annotations

from typing import Any

from aetcd import rpc

from rebalance.core.txn import (
    Compare,
    CompareOp,
    CompareTarget,
    Delete,
    DeletePrefix,
    DeleteRange,
    Get,
    GetPrefix,
    KeyValue,
    Operation,
    Put,
    Txn,
    TxnResult,
)
from rebalance.ports.metastore import KeyEvent, WatchBatch

_RESULTS = {
    CompareOp.EQUAL: rpc.Compare.EQUAL,
    CompareOp.NOT_EQUAL: rpc.Compare.NOT_EQUAL,
    CompareOp.LESS: rpc.Compare.LESS,
    CompareOp.GREATER: rpc.Compare.GREATER,
}


def range_end(prefix: str) -> bytes:
    """The first key after all keys with this prefix. Raises ValueError for a prefix without an end."""
    raw = bytearray(prefix.encode())
    while raw:
        if raw[-1] < 0xFF:
            raw[-1] += 1
            return bytes(raw)
        raw.pop()
    raise ValueError("an empty prefix has no end")


def key_value(kv: Any) -> KeyValue:
    return KeyValue(kv.key.decode(), kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def compare_message(compare: Compare) -> Any:
    message = rpc.Compare(key=compare.key.encode(), result=_RESULTS[compare.op])
    if compare.below:
        message.range_end = range_end(compare.key)
    match compare.target:
        case CompareTarget.MOD_REVISION:
            message.target, message.mod_revision = rpc.Compare.MOD, compare.operand
        case CompareTarget.CREATE_REVISION:
            message.target, message.create_revision = rpc.Compare.CREATE, compare.operand
        case CompareTarget.VALUE:
            message.target, message.value = rpc.Compare.VALUE, compare.operand
    return message


def operation_message(operation: Operation) -> Any:
    match operation:
        case Put(key, value, lease):
            return rpc.RequestOp(request_put=rpc.PutRequest(key=key.encode(), value=value, lease=lease))
        case Delete(key):
            return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key.encode()))
        case DeleteRange(start, end):
            return _delete_range(start, end.encode())
        case DeletePrefix(prefix):
            return _delete_range(prefix, range_end(prefix))
        case Get(key):
            return rpc.RequestOp(request_range=rpc.RangeRequest(key=key.encode()))
        case GetPrefix(prefix):
            keys = rpc.RangeRequest(key=prefix.encode(), range_end=range_end(prefix))
            return rpc.RequestOp(request_range=keys)
        case Txn():
            return rpc.RequestOp(request_txn=txn_request(operation))


def _delete_range(start: str, end: bytes) -> Any:
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=start.encode(), range_end=end))


def txn_request(txn: Txn) -> Any:
    return rpc.TxnRequest(
        compare=[compare_message(each) for each in txn.compares],
        success=[operation_message(each) for each in txn.success],
        failure=[operation_message(each) for each in txn.failure],
    )


def txn_result(txn: Txn, reply: Any, revision: int = 0) -> TxnResult:
    """``revision`` comes from the outermost reply: inner ones may leave it empty."""
    revision = revision or reply.header.revision
    branch = txn.success if reply.succeeded else txn.failure
    responses: list[TxnResult | tuple[KeyValue, ...] | None] = []
    for operation, response in zip(branch, reply.responses, strict=True):
        if isinstance(operation, Txn):
            responses.append(txn_result(operation, response.response_txn, revision))
        elif isinstance(operation, Get | GetPrefix):
            responses.append(tuple(key_value(kv) for kv in response.response_range.kvs))
        else:
            responses.append(None)
    return TxnResult(reply.succeeded, revision, tuple(responses))


def watch_request(prefix: str, start_revision: int) -> Any:
    create = rpc.WatchCreateRequest(
        key=prefix.encode(), range_end=range_end(prefix), start_revision=start_revision
    )
    return rpc.WatchRequest(create_request=create)


def watch_batch(reply: Any) -> WatchBatch:
    events = tuple(
        KeyEvent(
            event.kv.key.decode(),
            None if event.type == rpc.Event.DELETE else key_value(event.kv),
            event.kv.mod_revision,
        )
        for event in reply.events
    )
    return WatchBatch(max(event.mod_revision for event in events), events)
