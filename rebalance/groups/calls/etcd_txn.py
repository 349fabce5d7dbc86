"""Parts of a transaction of etcd's, and what its reads have found."""

from __future__ import annotations

from typing import Any

from aetcd import rpc


def get(key: bytes, *, serializable: bool = False, keys_only: bool = False) -> Any:
    wanted = rpc.RangeRequest(key=key, serializable=serializable, keys_only=keys_only)
    return rpc.RequestOp(request_range=wanted)


def get_newest(prefix: bytes, *, serializable: bool = False) -> Any:
    """The key with ``prefix`` that was written last."""
    newest = rpc.RangeRequest(
        key=prefix,
        range_end=prefix_end(prefix),
        sort_target=rpc.RangeRequest.MOD,
        sort_order=rpc.RangeRequest.DESCEND,
        limit=1,
        serializable=serializable,
    )
    return rpc.RequestOp(request_range=newest)


def put(key: bytes, value: bytes, lease: int = 0) -> Any:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, lease=lease))


def delete(key: bytes, range_end: bytes = b"") -> Any:
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key, range_end=range_end))


def put_if_absent(key: bytes, value: bytes, lease: int) -> Any:
    """A transaction of its own within another one."""
    inner = rpc.TxnRequest(compare=[absent(key)], success=[put(key, value, lease)])
    return rpc.RequestOp(request_txn=inner)


def absent(key: bytes) -> Any:
    return rpc.Compare(key=key, target=rpc.Compare.CREATE, result=rpc.Compare.EQUAL, create_revision=0)


def has_value(key: bytes, value: bytes) -> Any:
    return rpc.Compare(key=key, target=rpc.Compare.VALUE, result=rpc.Compare.EQUAL, value=value)


def unchanged(key: bytes, revision: int) -> Any:
    """Written last at ``revision``; 0: it is absent."""
    return rpc.Compare(key=key, target=rpc.Compare.MOD, result=rpc.Compare.EQUAL, mod_revision=revision)


def items_of(reply: Any) -> list[Any]:
    """What each of the reply's reads has found."""
    return [response.response_range.kvs for response in reply.responses]


def prefix_end(prefix: bytes) -> bytes:
    return prefix[:-1] + bytes((prefix[-1] + 1,))
