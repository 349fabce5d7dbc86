"""Sample keys before and after a move, read from each copy, and a copy that was tampered with."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from aetcd import rpc

from rebalance.groups.calls.data_client import DATUM_PREFIX
from rebalance.groups.calls.etcd_api import open_channel
from rebalance.groups.calls.key_hash import partition_of
from rebalance.hosting.tls import TlsFiles
from tests.e2e.installation import ANSWER_S, Installation, wait_for

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow("all copies are read before and after a move")]
KEYS, PARTITIONS = 30, 3


def verify(installation: Installation, *more: str) -> tuple[int, dict[str, Any]]:
    done = installation.zonectl("verify", "checked", "--format", "json", *more)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


def faults(found: dict[str, Any]) -> dict[str, tuple[set[str], set[str]]]:
    """Lacking and different keys of faulty copies, by node."""
    copies = [each for partition in found["partitions"] for each in partition["copies"]]
    bad = [each for each in copies if each["lacking"] or each["different"] or each["error"]]
    return {each["node"]: (set(each["lacking"]), set(each["different"])) for each in bad}


async def tamper(url: str, tls: TlsFiles | None, lost: str, changed: str) -> None:
    """Straight at one copy's own store, past the group."""
    channel = open_channel(url, tls)
    try:
        kv = rpc.KVStub(channel)
        await kv.DeleteRange(rpc.DeleteRangeRequest(key=DATUM_PREFIX + lost.encode()), timeout=ANSWER_S)
        await kv.Put(rpc.PutRequest(key=DATUM_PREFIX + changed.encode(), value=b"forged"), timeout=ANSWER_S)
    finally:
        await channel.close()


@pytest.mark.row("VOL-011", "VOL-082", "VOL-083")
def test_samples_before_and_after_a_move_and_a_forged_copy(five_nodes: Installation, tmp_path: Path) -> None:
    """VOL-011, VOL-082, VOL-083: saved keys are on all copies that a change leads to, voters and learners, and
    in the partitions in which they were; a key that one copy lost and one that was changed there are named
    with the copy, with exit code 1."""
    installation, file = five_nodes, tmp_path / "keys.json"
    installation.execute(f"CREATE ZONE checked (PARTITIONS {PARTITIONS}, REPLICAS 1)")
    for number in range(KEYS):
        path = f"/api/v1/zones/checked/kv/k-{number}"
        installation.request("PUT", path, {"value": f"v-{number}"}).raise_for_status()
    code, before = verify(installation, "--samples", "5", "--save", str(file))
    assert (code, before["agrees"]) == (0, True)
    assert [len(each["keys"]) for each in before["partitions"]] == [5] * PARTITIONS
    for partition in before["partitions"]:
        placed = {partition_of(each["key"], PARTITIONS) for each in partition["keys"]}
        assert placed == {partition["partition"]}
    assert verify(installation, "--samples", "3", "--seed", "5") == verify(
        installation, "--samples", "3", "--seed", "5"
    )
    installation.execute("ALTER ZONE checked SET (REPLICAS 4, QUORUM SIZE 2)")
    code, after = verify(installation, "--keys", str(file))
    assert (code, after["changed"]) == (0, 0), faults(after)
    for partition in after["partitions"]:
        assert sorted(each["role"] for each in partition["copies"]) == ["LEARNER"] + ["VOTER"] * 3
    assert [each["keys"] for each in after["partitions"]] == [each["keys"] for each in before["partitions"]]

    lost, changed = (each["key"] for each in after["partitions"][0]["keys"][:2])
    members = installation.partitions("checked")[0]["members"]
    forged = next(each for each in members if each["mirror"] is not None)
    (agent,) = installation.processes("app.cli", " node ", f"--name {forged['node']}")
    # Its own node would notice at once, and make the copy anew.
    agent.send_signal(signal.SIGSTOP)
    try:
        asyncio.run(tamper(forged["mirror"]["client_url"], installation.tls, lost, changed))
        code, found = verify(installation, "-p", "0", "--samples", "20")
    finally:
        agent.send_signal(signal.SIGCONT)
    assert code == 1
    assert faults(found) == {forged["node"]: ({lost}, {changed})}
    # The forged store stands at a revision that its group never had: with the next put its node finds that out.
    number = next(each for each in range(KEYS) if f"k-{each}" == changed)
    path = f"/api/v1/zones/checked/kv/{changed}"
    for _ in range(3):
        installation.request("PUT", path, {"value": f"v-{number}"}).raise_for_status()
    wait_for("a new copy", lambda: verify(installation, "--keys", str(file))[0] == 0, pause_s=1.0)
    installation.execute("DROP ZONE checked")
