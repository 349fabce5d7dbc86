"""Settings of ``zonectl node`` that reach its store server, a process of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from rebalance.core.keyspace.keys import Keyspace
from rebalance.core.keyspace.records import ProcessRecord
from rebalance.hosting.child import guarded_command, stop
from rebalance.hosting.tls import TlsFiles, ends_of
from rebalance.metastore.etcd import EtcdMetastore
from rebalance.store.core.ring_records import ServerBeat, decode_beat
from rebalance.store.shell.store_client import StoreChannel, StoreUnreachableError, server_url
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.ports import free_block
from tests.fixtures.tls_files import tls_files, until_shown

LIMIT_S = 60.0
CLIENT_S = 5.0
TTL_S = 7


@asynccontextmanager
async def node(
    directory: Path, etcd: Etcd, keyspace: Keyspace, settings: dict[str, str]
) -> AsyncIterator[None]:
    """Node whose store server has run here before, so it starts without a zone."""
    data_dir, first = directory / "n1", free_block(10).start
    (data_dir / "store").mkdir(parents=True)
    command = (
        *(sys.executable, "-m", "app.cli", "node", "--name", "n1", "--profiles", "default,bulk=store"),
        *("--metastore", etcd.endpoint, "--data-dir", str(data_dir), "--ports", f"{first}-{first + 9}"),
    )
    environment = {**os.environ, "ZONEKEEPER_METASTORE_PREFIX": keyspace.prefix, **settings}
    with (directory / "node.log").open("ab") as log:
        process = subprocess.Popen(guarded_command(command), stdout=log, stderr=log, env=environment)
    try:
        yield
    finally:
        await asyncio.to_thread(stop, process, 15.0)


async def beat(metastore: EtcdMetastore, keyspace: Keyspace) -> tuple[ServerBeat, str]:
    """That of the server, once it is there; and the name of its incarnation."""
    prefix = keyspace.exchange_servers
    async with asyncio.timeout(LIMIT_S):
        while not (items := (await metastore.range(prefix)).items):
            await asyncio.sleep(0.1)
    (item,) = items
    return decode_beat(item.value), item.key.rpartition("/")[2]


async def test_the_store_server_of_a_node_has_its_certificate_and_its_ttl(
    tmp_path: Path, etcd_server: Etcd, metastore: EtcdMetastore, keyspace: Keyspace
) -> None:
    tls = tls_files(tmp_path / "tls", trustme.CA())
    settings = {
        "ZONEKEEPER_TLS_CA": str(tls.ca),
        "ZONEKEEPER_TLS_CERTIFICATE": str(tls.certificate),
        "ZONEKEEPER_TLS_KEY": str(tls.key),
        "ZONEKEEPER_STORE_TTL_S": str(TTL_S),
    }
    async with node(tmp_path, etcd_server, keyspace, settings):
        server, incarnation = await beat(metastore, keyspace)
        assert server.ttl_ms == 1_000 * TTL_S
        url = server_url(server.host, server.port, "n1", incarnation)
        known = StoreChannel(url, tls)
        stranger = StoreChannel(url)
        try:
            await known.copies(LIMIT_S)
            with pytest.raises(StoreUnreachableError):
                await stranger.copies(CLIENT_S)
        finally:
            await known.close()
            await stranger.close()
        await another_is_shown(tls, server.port, StoreChannel(url, tls))
        for process in ("n1", "n1 store"):
            await until_registered(metastore, keyspace.process(process), tls.certificate)


async def another_is_shown(tls: TlsFiles, port: int, before: StoreChannel) -> None:
    """Files that are replaced, even by those of another authority, are in force without a restart; a connection
    that was made before goes on."""
    await before.copies(LIMIT_S)
    renewed = tls_files(tls.ca.parent / "renewed", trustme.CA(), ends=datetime.now(UTC) + timedelta(days=3))
    for file in ("ca", "certificate", "key"):
        shutil.copy(getattr(renewed, file), getattr(tls, file))
    await until_shown(port, renewed)
    await before.copies(LIMIT_S)
    await before.close()


async def until_registered(metastore: EtcdMetastore, key: str, certificate: Path) -> None:
    """Wait until the process reports the file's end as that of the certificate that it has loaded."""
    end_s = ends_of(certificate)
    async with asyncio.timeout(LIMIT_S):
        while True:
            item = await metastore.get(key)
            if item is not None:
                record = ProcessRecord.decode(item.value)
                if (record.certificate, record.certificate_end_s) == (str(certificate), end_s):
                    return
            await asyncio.sleep(0.2)
