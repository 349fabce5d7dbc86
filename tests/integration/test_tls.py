"""TLS on every connection: a metastore and members of groups that only speak to who shows a certificate."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import Keyspace, PartitionId
from rebalance.core.keyspace.records import MemberState
from rebalance.core.keyspace.txn import Put, Txn
from rebalance.data.zone_router import ZoneRouter
from rebalance.groups.calls.etcd_api import CallFailedError, EtcdApi
from rebalance.groups.etcd_group import EtcdGroupHost
from rebalance.hosting.child import spawn, stop
from rebalance.hosting.etcd_binary import find_etcd
from rebalance.hosting.tls import TlsFiles
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.nodes.partition_view import MirroredEndpoints
from rebalance.ports.groups import OutcomeUnknownError
from rebalance.ports.metastore import MetastoreUnavailableError, WatchBatch, WatchReset
from tests.fixtures.node_cluster import NodeCluster, node_cluster, writing
from tests.fixtures.ports import free_block
from tests.fixtures.tls_files import until_shown

LIMIT_S = 60.0
P0 = PartitionId(ZoneId(7), 0)


def issue(authority: trustme.CA, directory: Path) -> TlsFiles:
    directory.mkdir()
    files = TlsFiles(directory / "ca.pem", directory / "cert.pem", directory / "key.pem")
    issued = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(files.ca)
    files.certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(files.key)
    return files


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA, tmp_path: Path) -> TlsFiles:
    return issue(authority, tmp_path / "tls")


@pytest.fixture
def metastore_endpoint(tls: TlsFiles, tmp_path: Path) -> Iterator[str]:
    client, peer = free_block(2)
    url, peer_url = f"https://127.0.0.1:{client}", f"https://127.0.0.1:{peer}"
    flags = {"trusted-ca-file": tls.ca, "cert-file": tls.certificate, "key-file": tls.key}
    process = spawn(
        [
            *(find_etcd().path, "--name", "test", "--data-dir", str(tmp_path / "metastore")),
            *("--listen-client-urls", url, "--advertise-client-urls", url, "--client-cert-auth"),
            *(
                "--listen-peer-urls",
                peer_url,
                "--initial-advertise-peer-urls",
                peer_url,
                "--peer-client-cert-auth",
            ),
            *("--initial-cluster", f"test={peer_url}", "--log-level", "warn"),
            *(f"--{peer}{flag}={path}" for flag, path in flags.items() for peer in ("", "peer-")),
        ],
        log=tmp_path / "etcd.log",
    )
    yield f"127.0.0.1:{client}"
    stop(process, 5)


@pytest.fixture
async def cluster(
    metastore_endpoint: str, tls: TlsFiles, keyspace: Keyspace, tmp_path: Path
) -> AsyncIterator[NodeCluster]:
    async with node_cluster(metastore_endpoint, keyspace, tmp_path, tls) as running:
        yield running


async def test_a_group_moves_over_tls(cluster: NodeCluster, tls: TlsFiles, tmp_path: Path) -> None:
    """Move a group under a writer; a client without a certificate, or with one of another authority, reaches
    nothing."""
    cluster.start("n1", "n2", "n3")
    await cluster.write_stable(P0, "n1", "n2")
    await cluster.until(lambda: cluster.settled(P0, "n1", "n2"))
    async with writing(cluster, P0) as writer:
        await cluster.until(lambda: len(writer.written) > 20)
        await cluster.write_pending(P0, "n2", "n3")
        await cluster.until(lambda: cluster.settled(P0, "n2", "n3"))
    await writer.check()

    record = cluster.record(P0, "n3")
    assert record is not None
    assert record.client_url.startswith("https://")
    stranger = issue(trustme.CA(), tmp_path / "stranger")
    for files in (None, replace(stranger, ca=tls.ca)):
        router = ZoneRouter(MirroredEndpoints(cluster.mirrors), time_limit_s=1.0, tls=files)
        with pytest.raises(OutcomeUnknownError):
            await router.put(P0, "k", b"v", "by a stranger")
        await router.close()
        store = EtcdMetastore([cluster.endpoint], 1.0, tls=files)
        with pytest.raises(MetastoreUnavailableError):
            await store.get(cluster.keyspace.partition(P0).stable)
        await store.close()
    plain = EtcdApi(record.client_url.replace("https", "http"))
    with pytest.raises(CallFailedError):
        await plain.status()
    await plain.close()


async def test_a_node_without_its_certificate_says_so(cluster: NodeCluster) -> None:
    """A member that speaks TLS is not started without: it could not be reached. With it, it goes on."""
    cluster.start("n1")
    await cluster.write_stable(P0, "n1")
    await cluster.until(lambda: cluster.settled(P0, "n1"))
    await cluster.router.put(P0, "k", b"v", "id-1")
    directory, ports = cluster.directory / "n1", cluster.ports("n1")
    await cluster.stop("n1")

    host = EtcdGroupHost(directory, ports)
    host.open("n1")
    await host.restart(P0)
    status = await host.status(P0)
    assert status is not None
    assert status.reason.startswith("NO_CERTIFICATE")
    await host.close()

    cluster.start("n1")
    await cluster.until(lambda: getattr(cluster.record(P0, "n1"), "state", None) is MemberState.RUNNING)
    assert (await cluster.router.get(P0, "k", limit_s=60)).value == b"v"


async def test_another_certificate_is_in_force_without_a_restart(
    metastore_endpoint: str, authority: trustme.CA, tls: TlsFiles, keyspace: Keyspace, tmp_path: Path
) -> None:
    """Replace the certificate of a client of the metastore, whose watch goes on meanwhile, and that of etcd
    itself."""
    own, stranger = issue(trustme.CA(), tmp_path / "own"), issue(trustme.CA(), tmp_path / "stranger")
    put(tls, own)
    store = EtcdMetastore([metastore_endpoint], 5.0, tls=own)
    key = f"{keyspace.prefix}key"
    watched = store.watch(keyspace.prefix)
    assert isinstance(await anext(watched), WatchReset)
    async with asyncio.timeout(LIMIT_S):
        assert await is_answered(store, key)
        put(stranger, own)
        while await is_answered(store, key):
            await asyncio.sleep(0.2)
        put(tls, own)
        while not await is_answered(store, key):
            await asyncio.sleep(0.2)
        await store.commit(Txn((), (Put(key, b"v"),)))
        assert isinstance(await anext(watched), WatchBatch)
    await store.close()

    renewed = issue(authority, tmp_path / "renewed")
    put(renewed, tls)
    await until_shown(int(metastore_endpoint.rpartition(":")[2]), renewed)


async def is_answered(store: EtcdMetastore, key: str) -> bool:
    with suppress(MetastoreUnavailableError):
        await store.get(key)
        return True
    return False


def put(files: TlsFiles, into: TlsFiles) -> None:
    for name in ("ca", "certificate", "key"):
        shutil.copy(getattr(files, name), getattr(into, name))
