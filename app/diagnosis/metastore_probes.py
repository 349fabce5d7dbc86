"""Probes of etcd: each member by itself, and the cluster by the first member that answers. Reads only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import grpc
import httpx
from aetcd import rpc

from app.diagnosis import checks
from app.diagnosis.checks import Check, CheckVerdict
from app.diagnosis.examined_installation import ExaminedInstallation
from rebalance.hosting.tls import TlsFiles

T = TypeVar("T")

CALL_S = 4.0
_GAUGE = re.compile(r"^(\w+) ([-+.\deE]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MetastoreMember:
    """One endpoint (host:port) of the metastore, asked over HTTP and over gRPC."""

    endpoint: str
    tls: TlsFiles | None

    def get(self, path: str) -> httpx.Response:
        """Raises httpx.HTTPError, ValueError, OSError."""
        scheme, verify = ("http", False) if self.tls is None else ("https", self.tls.context())
        url = f"{scheme}://{self.endpoint}{path}"
        return httpx.get(url, timeout=CALL_S, verify=verify, trust_env=False).raise_for_status()

    def channel(self) -> Any:
        """Open a gRPC channel to the member; the caller closes it."""
        if self.tls is None:
            return grpc.insecure_channel(self.endpoint)
        return grpc.secure_channel(self.endpoint, self.tls.credentials())


def member(one: MetastoreMember) -> Iterator[Check]:
    """Version, clock and size of one member."""
    asked = datetime.now(UTC)
    answer = one.get("/version")
    answered = datetime.now(UTC)
    yield checks.etcd_version(f"version of etcd {one.endpoint}", str(json.loads(answer.text)["etcdserver"]))
    if date := answer.headers.get("date"):
        skew = checks.skew_s(parsedate_to_datetime(date), asked, answered)
        yield checks.clock(f"etcd {one.endpoint}", skew)
    gauges = {name: float(value) for name, value in _GAUGE.findall(one.get("/metrics").text)}
    yield checks.check_of(
        f"leader of etcd {one.endpoint}",
        "known" if gauges.get("etcd_server_has_leader") else "none",
        "fail without one",
        CheckVerdict.OK if gauges.get("etcd_server_has_leader") else CheckVerdict.FAIL,
        "A majority of etcd's members must run and reach each other.",
    )
    yield checks.etcd_size(
        one.endpoint,
        gauges["etcd_mvcc_db_total_size_in_bytes"],
        gauges.get("etcd_mvcc_db_total_size_in_use_in_bytes", 0.0),
        gauges.get("etcd_server_quota_backend_bytes", 0.0),
    )


def cluster(members: Iterable[MetastoreMember], installation: ExaminedInstallation) -> Iterator[Check]:
    """Alarms, and leases of nodes. Raises OSError with the last failure."""
    alarms, leases = first_answer(members, lambda channel: (_alarms(channel), _leases(channel, installation)))
    yield checks.etcd_alarms(alarms)
    yield checks.node_leases(installation.nodes, leases)


def first_answer(members: Iterable[MetastoreMember], ask: Callable[[Any], T]) -> T:
    """Answer of the first member that gives one; ``ask`` gets a channel to the member. Raises OSError with the
    last failure."""
    last = OSError("no endpoint is known")
    for one in members:
        try:
            with one.channel() as channel:
                return ask(channel)
        except OSError as error:
            last = error
        except grpc.RpcError as error:
            is_late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            reason = "no answer in time" if is_late else f"{error.code().name}: {error.details()}"
            last = OSError(f"{one.endpoint}: {reason}")
    raise last


def _alarms(channel: Any) -> list[str]:
    request = rpc.AlarmRequest(action=rpc.AlarmRequest.GET)
    reply = rpc.MaintenanceStub(channel).Alarm(request, timeout=CALL_S)
    return [f"{rpc.AlarmType.Name(alarm.alarm)} of member {alarm.memberID:x}" for alarm in reply.alarms]


def _leases(channel: Any, installation: ExaminedInstallation) -> dict[str, tuple[int, int]]:
    """Seconds left and seconds granted of the lease of each registered node, by its name."""
    prefix = f"{installation.prefix}nodes/".encode()
    request = rpc.RangeRequest(key=prefix, range_end=prefix[:-1] + b"0", keys_only=True)
    found = {}
    for item in rpc.KVStub(channel).Range(request, timeout=CALL_S).kvs:
        if item.lease:
            ask = rpc.LeaseTimeToLiveRequest(ID=item.lease)
            lease = rpc.LeaseStub(channel).LeaseTimeToLive(ask, timeout=CALL_S)
            found[item.key[len(prefix) :].decode()] = (int(lease.TTL), int(lease.grantedTTL))
    return found
