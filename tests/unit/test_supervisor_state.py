"""State that ``up`` keeps: ports, the lock, run.json; and the plan of its children."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from app.configuration.settings import Settings
from app.supervision.child_plan import StopRank, UpOptions, default_topology, plan_children, read_topology
from app.supervision.installation_state import (
    Addresses,
    DataDirectory,
    LoginRule,
    Ports,
    UpError,
    choose_etcd,
    choose_login,
    choose_ports,
    load_ports,
    save_state,
)
from rebalance.hosting.free_ports import first_ephemeral_port, free_block
from rebalance.hosting.tls import TlsFiles

TLS = TlsFiles(Path("/tls/ca.pem"), Path("/tls/cert.pem"), Path("/tls/key.pem"))


@contextmanager
def taken(port: int) -> Iterator[None]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        yield


def test_ports_are_kept_across_runs(tmp_path: Path) -> None:
    first = choose_ports(None, ["n1", "n2"], member_limit=10)
    save_state(tmp_path, first, has_login=False)
    again = choose_ports(load_ports(tmp_path), ["n1", "n2", "n3"], member_limit=10)
    assert (again.api, again.etcd_client, again.etcd_peer) == (first.api, first.etcd_client, first.etcd_peer)
    assert {name: again.nodes[name] for name in ("n1", "n2")} == first.nodes
    fewer = choose_ports(again, ["n1"], member_limit=10)
    assert fewer.nodes == again.nodes  # n2 and n3 find theirs when they come back


def test_ports_are_apart_and_below_the_ephemeral_range() -> None:
    ports = choose_ports(None, [f"n{i}" for i in range(20)], member_limit=50)
    blocks = list(ports.nodes.values())
    assert all(len(block) == 101 for block in blocks), "two a member, one of the store server"
    every = [port for block in blocks for port in block] + [ports.api, ports.etcd_client, ports.etcd_peer]
    assert len(every) == len(set(every))
    assert max(every) < first_ephemeral_port()


LOOPBACK = "127.0.0.1"


def test_login_is_required_from_the_first_start_on_and_for_good(tmp_path: Path) -> None:
    ports = choose_ports(None, [], https_port=0, member_limit=1)
    for requested in (None, True):
        assert choose_login(tmp_path, requested, LOOPBACK) == LoginRule(True)
    save_state(tmp_path, ports, has_login=True)
    for requested, host in ((None, "0.0.0.0"), (True, LOOPBACK)):
        assert choose_login(tmp_path, requested, host) == LoginRule(True)
    with pytest.raises(UpError, match="--no-auth is for data directories that are new or were made with it"):
        choose_login(tmp_path, False, LOOPBACK)
    assert len({ports.api, ports.https, ports.etcd_client, ports.etcd_peer}) == 4
    assert load_ports(tmp_path) == ports


def test_no_login_stays_until_it_is_required(tmp_path: Path) -> None:
    assert choose_login(tmp_path, False, LOOPBACK) == LoginRule(False)
    save_state(tmp_path, choose_ports(None, [], member_limit=1), has_login=False)
    for requested in (None, False):
        assert choose_login(tmp_path, requested, LOOPBACK) == LoginRule(False)
        with pytest.raises(UpError, match=r"others reach 0\.0\.0\.0"):
            choose_login(tmp_path, requested, "0.0.0.0")
    assert choose_login(tmp_path, True, LOOPBACK) == LoginRule(True, is_new=True)


@pytest.mark.parametrize("file", ["state.json", "catalog.sqlite"])
def test_data_of_a_release_without_login_are_new_to_it(file: str, tmp_path: Path) -> None:
    ports = choose_ports(None, [], member_limit=1).as_json()
    (tmp_path / file).write_text(json.dumps(ports) if file == "state.json" else "")
    for requested in (None, True):
        assert choose_login(tmp_path, requested, LOOPBACK) == LoginRule(True, is_new=True)
    with pytest.raises(UpError, match="is neither: leave it out, or choose another --data-dir"):
        choose_login(tmp_path, False, LOOPBACK)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "nowhere.invalid"])
def test_no_login_by_request_is_for_the_loopback_alone(tmp_path: Path, host: str) -> None:
    with pytest.raises(UpError, match=host):
        choose_login(tmp_path, False, host)
    assert choose_login(tmp_path, False, "localhost") == LoginRule(False)


def test_a_taken_port_is_replaced_but_never_a_nodes_block() -> None:
    first = choose_ports(None, ["n1"], member_limit=2)
    with taken(first.api), taken(first.etcd_client), taken(first.nodes["n1"].start):
        again = choose_ports(first, ["n1"], member_limit=2, patience_s=0)
    assert again.api != first.api
    assert again.etcd_client != first.etcd_client
    assert again.etcd_peer == first.etcd_peer
    assert again.nodes == first.nodes


def test_a_port_that_was_asked_for_must_be_free() -> None:
    port = free_block(1).start
    with taken(port):
        with pytest.raises(UpError, match=f"port {port} is taken .* choose another --port"):
            choose_ports(None, [], api_port=port, member_limit=1, patience_s=0)
        with pytest.raises(UpError, match=f"port {port} is taken .* choose another --https-port"):
            choose_ports(None, [], https_port=port, member_limit=1, patience_s=0)
    assert choose_ports(None, [], api_port=port, member_limit=1).api == port
    assert choose_ports(None, [], https_port=port, member_limit=1).https == port


@pytest.mark.parametrize("option", ["--port", "--https-port"])
def test_a_port_that_was_asked_for_is_none_of_a_nodes_block(option: str) -> None:
    """Neither of one that an earlier run chose, nor of one that is chosen now, which makes room for it."""
    first = choose_ports(None, ["n1", "n2"], member_limit=2)
    port, is_api = first.nodes["n2"].start + 1, option == "--port"
    api_port, https_port = (port, None) if is_api else (0, port)
    n1, n2 = (f"{block.start}-{block.stop - 1}" for block in first.nodes.values())
    with pytest.raises(UpError, match=f"port {port} is kept for .* another {option}, outside of {n1}, {n2}"):
        choose_ports(first, ["n1"], api_port=api_port, https_port=https_port, member_limit=2)
    for _ in range(20):
        chosen = choose_ports(
            None,
            ["n1"],
            api_port=api_port,
            https_port=https_port,
            member_limit=1,
            within=range(port - 5, port + 6),
        )
        assert port == (chosen.api if is_api else chosen.https)


def test_http_and_https_have_ports_of_their_own() -> None:
    first = choose_ports(None, [], https_port=0, member_limit=1)
    again = choose_ports(first, [], api_port=first.https, https_port=0, member_limit=1)
    assert again.api == first.https != again.https
    with pytest.raises(UpError, match=f"port {first.https} is taken .* choose another --https-port"):
        choose_ports(None, [], api_port=first.https, https_port=first.https, member_limit=1)


def test_free_block_avoids_what_is_promised() -> None:
    top = first_ephemeral_port()
    gap = range(20_000, 20_004)
    for _ in range(5):
        block = free_block(2, avoid=[range(0, gap.start), range(gap.stop, top + 1)], attempts=1_000_000)
        assert set(block) <= set(gap)
    with pytest.raises(RuntimeError, match="no block"):
        free_block(2, avoid=[range(0, top + 1)])


def test_what_an_earlier_release_remembered_of_its_etcd_still_counts(tmp_path: Path) -> None:
    """Ports and the version of etcd were kept together by an earlier release."""
    ports = choose_ports(None, [], member_limit=1).as_json()
    (tmp_path / "state.json").write_text(json.dumps({**ports, "etcd_version": [9, 9, 0]}))
    with pytest.raises(UpError, match=r"written by etcd 9\.9\.0, which etcd .*: put etcd 9\.9 or later"):
        choose_etcd(tmp_path, None)
    (tmp_path / "etcd.json").unlink()
    (tmp_path / "state.json").write_text(json.dumps({**ports, "etcd_version": [3, 4, 0]}))
    assert choose_etcd(tmp_path, None).version >= (3, 4, 0)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"v": 2}', '{"v": 1, "api": 1}'])
def test_a_damaged_state_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(UpError, match=r"state\.json"):
        load_ports(tmp_path)


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "data") as directory:
        members = {"n1": "127.0.0.1:3-4"}
        addresses = Addresses("http://127.0.0.1:1", "", "127.0.0.1:2", members, "local[*]", TLS)
        directory.write_run(addresses, {"etcd": 7})
        body = json.loads((tmp_path / "data" / "run.json").read_text())
        assert (body["url"], body["pid"], body["children"]) == (addresses.api, os.getpid(), {"etcd": 7})
        assert body["addresses"] == {
            "api": "http://127.0.0.1:1",
            "health": "",
            "console": "",
            "etcd": "127.0.0.1:2",
            "nodes": {"n1": "127.0.0.1:3-4"},
            "spark": "local[*]",
            "tls": {"ca": "/tls/ca.pem", "certificate": "/tls/cert.pem", "key": "/tls/key.pem"},
        }
        with pytest.raises(UpError, match=rf"pid {os.getpid()}\b"), DataDirectory(tmp_path / "data"):
            pass
        assert (tmp_path / "data" / "run.json").exists()
    assert not (tmp_path / "data" / "run.json").exists()
    with DataDirectory(tmp_path / "data"):
        pass


def test_a_directory_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UpError, match="cannot use"), DataDirectory(tmp_path / "file" / "data"):
        pass


def test_a_topology_file(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text('[{"name": "a", "attributes": {"tier": 1}, "profiles": ["ssd"]}, {"name": "b"}]')
    first, second = read_topology(file)
    assert (first.name, dict(first.attributes), first.profiles) == ("a", {"tier": 1}, ("ssd",))
    assert (second.name, dict(second.attributes), second.profiles) == ("b", {}, ("default",))


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "[1]",
        '[{"name": "a b"}]',
        '[{"name": ""}]',
        '[{"name": "a"}, {"name": "a"}]',
        '[{"name": "a", "attributes": []}]',
        '[{"name": "a", "attributes": {"x": {}}}]',
        '[{"name": "a", "profiles": "ssd"}]',
        '[{"name": "a", "profile": ["ssd"]}]',
        "[",
    ],
)
def test_a_wrong_topology_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(text)
    with pytest.raises(UpError, match="topology"):
        read_topology(file)


def test_the_plan(tmp_path: Path) -> None:
    ports = Ports(7400, 2379, 2380, {"n1": range(20_000, 20_201), "n2": range(21_000, 21_010), "n9": range(1)})
    children = plan_children(
        tmp_path,
        ports,
        UpOptions(Settings(data_dir=tmp_path), default_topology(2)),
        etcd="/bin/etcd",
        tls=TLS,
    )
    assert [child.name for child in children] == ["etcd", "server", "n1", "n2"]
    assert [child.name for child in sorted(children, key=lambda child: child.rank)][-2:] == ["server", "etcd"]
    assert {child.rank for child in children} == {StopRank.NODE, StopRank.SERVER, StopRank.METASTORE}
    first, second = children[2].argv, children[3].argv
    assert first[first.index("--ports") + 1] == "20000-20200"
    assert json.loads(first[first.index("--attributes") + 1]) == {"region": "EU"}
    assert json.loads(second[second.index("--attributes") + 1]) == {"region": "US"}
    # All but etcd are told by settings what etcd is told by flags.
    assert f"--trusted-ca-file={TLS.ca}" in children[0].argv
    assert {"--client-cert-auth=true", "--peer-client-cert-auth=true"} <= set(children[0].argv)
    for child in children[1:]:
        assert child.env["ZONEKEEPER_TLS_KEY"] == str(TLS.key)
        assert child.env["ZONEKEEPER_METASTORE_TLS"] == "true"
    assert first[first.index("--member-limit") + 1] == "100"
    # A block chosen under a smaller limit keeps its size: it sets the limit, beside the store server's port.
    assert second[second.index("--member-limit") + 1] == "4"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory another user's")
def test_a_directory_that_another_user_has_prepared_is_not_used() -> None:
    """The directory may hold keys that its owner knows."""
    user, other = 65_534, 65_533
    with TemporaryDirectory() as place:
        os.chmod(place, 0o711)
        prepared = Path(place) / "zonekeeper-data"
        prepared.mkdir()
        prepared.chmod(0o777)
        for owner, refusal in (
            (other, f"{prepared} belongs to another user: choose another --data-dir"),
            (user, ""),
            (0, ""),
        ):
            os.chown(prepared, owner, owner)
            assert refusal_to(user, prepared) == refusal


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file another user's")
@pytest.mark.parametrize("name", ["catalog.sqlite", "admin.token", "tls", "state.json"])
def test_what_another_user_has_put_into_a_shared_directory_is_not_used(name: str) -> None:
    """The directory is like /tmp, where everybody may write: a catalog, for example, with an administrator of
    its own."""
    user, other = 65_534, 65_533
    with TemporaryDirectory() as place:
        os.chmod(place, 0o1777)
        prepared = Path(place) / name
        prepared.touch()
        for owner, refusal in (
            (other, f"{prepared} belongs to another user: choose another --data-dir"),
            (user, ""),
        ):
            os.chown(prepared, owner, owner)
            assert refusal_to(user, Path(place)) == refusal
        os.chown(Path(place) / "up.lock", user, user)
        (Path(place) / "notes.txt").touch()
        os.chown(Path(place) / "notes.txt", other, other)
        assert refusal_to(user, Path(place)) == ""


def refusal_to(user: int, directory: Path) -> str:
    """Reason why the user may not use the directory; empty: it may."""
    os.seteuid(user)
    try:
        with DataDirectory(directory):
            return ""
    except UpError as error:
        return str(error)
    finally:
        os.seteuid(0)


def test_ports_are_chosen_from_what_is_given() -> None:
    within = range(24_000, 24_200)
    ports = choose_ports(None, ["n1", "n2"], https_port=0, member_limit=10, within=within)
    chosen = [
        ports.api,
        ports.https,
        ports.etcd_client,
        ports.etcd_peer,
        *(p for b in ports.nodes.values() for p in b),
    ]
    assert set(chosen) <= set(within)
    assert len(set(chosen)) == 4 + 2 * 21
    with pytest.raises(
        UpError, match=r"no block of 21 free ports from 24000 to 24009.*ZONEKEEPER_UP_PORT_RANGE"
    ):
        choose_ports(None, ["n1"], member_limit=10, within=range(24_000, 24_010))
