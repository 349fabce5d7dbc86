"""Names and keys of every kind on a whole installation: REST, `zonectl`, and both modes of the client."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from app.cli.client import path_of, segment
from tests.e2e.installation import ANSWER_S, ZONECTL, Installation, wait_for
from tests.fixtures.slices import in_every_run
from zonekeeper_client import BlockingZoneClient, Mode, Read

pytestmark = pytest.mark.timeout(600)

KEYS = (
    *(
        "a\nb",
        "a\r\nb",
        "a/b",
        "/a",
        "a/",
        "//",
        "%",
        "%2f",
        "%00",
        "a?b",
        "a#b",
        "a b",
        "+",
        ".",
        "..",
        "a/../b",
    ),
    *(
        "../../zones",
        "partitions/0",
        "kv/x",
        "x/verify",
        "\x00",
        "a\x00",
        "\x7f",
        "\u202e",
        "\u200b",
        "é",
        "e\u0301",
    ),
    *("東京", "\U0001f642", "\ufffd", '"', "'", "\\", "<b>", "{zone}", "k" * 1024, "\U0001f642" * 1024),
)
REFUSED_RECOVERIES = {
    "default": {"reset": "RECOVERY_NOT_NEEDED", "reset-lost": "ENGINE_UNSUPPORTED"},
    "bulk": {
        "reset": "ENGINE_UNSUPPORTED",
        "restart": "ENGINE_UNSUPPORTED",
        "reset-lost": "RECOVERY_NOT_NEEDED",
    },
}
"""Refusals of each recovery of a zone that is well, by its storage profile."""
ZONES = ("a/b?c#d", "%2F..%", "kv/x/y", "\"quoted\" 'text' -- ;", "..a &=+", "<b>東京 🙂</b>")


@pytest.fixture(scope="module")
def zone(five_nodes: Installation) -> Iterator[str]:
    five_nodes.execute("CREATE ZONE keyed (PARTITIONS 2, REPLICAS 4, QUORUM SIZE 2)")
    yield "KEYED"
    five_nodes.execute("DROP ZONE keyed")


def raw(server: Installation, method: str, target: str, body: str | None = None) -> tuple[int, dict]:
    """A request whose target is sent as it is."""
    access = server.access
    connection = access.connection(ANSWER_S)
    headers = {"Content-Type": "application/json"} if body else {}
    connection.request(method, target, body, {**access.headers, **headers})
    answer = connection.getresponse()
    told = json.loads(answer.read())
    connection.close()
    return answer.status, told


def test_each_key_is_one_key_for_everybody(five_nodes: Installation, zone: str) -> None:
    """Put over REST, read over REST, by both modes of the client and from a learner; no key is another's."""
    servers = [five_nodes.url]
    with five_nodes.access.client(ANSWER_S) as http_client:
        for number, key in enumerate(KEYS):
            answer = http_client.put(path_of("zones", zone, "kv", key), json={"value": f"value {number}"})
            assert (answer.status_code, answer.json()["key"]) == (200, key)
    with (
        BlockingZoneClient(servers, mode=Mode.DIRECT, tls=five_nodes.tls, **five_nodes.login) as direct,
        BlockingZoneClient(servers, **five_nodes.login) as routed,
    ):
        for number, key in enumerate(KEYS):
            for client in (direct, routed):
                found = client.get(zone, key)
                assert found is not None
                assert found.value == f"value {number}"
            newest = direct.get(zone, key)
            assert newest is not None
            learned = routed.get(zone, key, read=Read.LEARNER, at_revision=newest.revision)
            assert learned == newest
            assert direct.put(zone, key, f"again {number}").partition == newest.partition
        for number, key in enumerate(KEYS):
            assert routed.get(zone, key) == direct.get(zone, key)
            status, told = raw(five_nodes, "GET", path_of("zones", zone, "kv", key))
            assert (status, told["key"], told["value"]) == (200, key, f"again {number}")


def test_each_key_is_verified(five_nodes: Installation, zone: str) -> None:
    put = [
        raw(five_nodes, "PUT", path_of("zones", zone, "kv", key), json.dumps({"value": "v"}))[1] for key in KEYS
    ]
    saved = [
        {"partition": number, "keys": [each["key"] for each in put if each["partition"] == number]}
        for number in (0, 1)
    ]
    assert sum(len(each["keys"]) for each in saved) == len(KEYS)
    status, told = raw(five_nodes, "POST", f"/api/v1/zones/{zone}/verify", json.dumps({"saved": saved}))
    assert (status, told["agrees"]) == (200, True)
    assert {each["key"] for part in told["partitions"] for each in part["keys"]} == set(KEYS)


def test_slashes_of_a_key_need_not_be_encoded(five_nodes: Installation, zone: str) -> None:
    for written, key in (("a/b", "a/b"), ("/x//", "/x//"), ("%6B", "k"), ("a%2fb/c", "a/b/c"), ("a+b", "a+b")):
        target = f"/api/v1/zones/{zone}/kv/{written}"
        status, told = raw(five_nodes, "PUT", target, json.dumps({"value": key}))
        assert (status, told["key"]) == (200, key)
        assert raw(five_nodes, "GET", path_of("zones", zone, "kv", key))[1]["value"] == key


@pytest.mark.parametrize("key", ["k%ff", "k%fe", "%ed%a0%80", "%c0%80", "k%", "k%f", "k%zz"])
def test_what_is_no_utf8_is_no_key(five_nodes: Installation, zone: str, key: str) -> None:
    """Two such keys would be one: U+FFFD in place of what cannot be read."""
    target = f"/api/v1/zones/{zone}/kv/{key}"
    for method, body in (("PUT", '{"value": "x"}'), ("GET", None)):
        status, told = raw(five_nodes, method, target, body)
        assert (status, told["name"], told["sqlState"]) == (400, "TEXT_NOT_UTF8", "22021")
    assert raw(five_nodes, "GET", path_of("zones", zone, "kv", "k\ufffd"))[0] == 404


def test_values_are_text(five_nodes: Installation, zone: str) -> None:
    status, told = raw(five_nodes, "PUT", path_of("zones", zone, "kv", "half"), '{"value": "\\ud800"}')
    assert (status, told["name"]) == (400, "TEXT_NOT_UTF8")
    whole = "\x00 \ufffd \U0001f642 \\ud800"
    assert raw(five_nodes, "PUT", path_of("zones", zone, "kv", "whole"), json.dumps({"value": whole}))[0] == 200
    assert raw(five_nodes, "GET", path_of("zones", zone, "kv", "whole"))[1]["value"] == whole


@pytest.mark.parametrize("mode", Mode)
def test_the_client_refuses_what_is_no_key(five_nodes: Installation, zone: str, mode: Mode) -> None:
    """The same in both modes, and before anything is sent."""
    with BlockingZoneClient([five_nodes.url], mode=mode, tls=five_nodes.tls, **five_nodes.login) as client:
        for key in ("", "k" * 1025, "\udcff"):
            with pytest.raises(ValueError, match="key"):
                client.put(zone, key, "v")
            with pytest.raises(ValueError, match="key"):
                client.get(zone, key)
        with pytest.raises(ValueError, match="value is not UTF-8"):
            client.put(zone, "k", "\ud800")
        with pytest.raises(ValueError, match="operation id"):
            client.put(zone, "k", "v", "é")


@pytest.mark.thorough("test_each_key_is_one_key_for_everybody, by other ways")
@pytest.mark.slow("fourteen commands, each a process")
def test_zonectl_puts_and_gets_each_key(five_nodes: Installation, zone: str) -> None:
    for number, key in enumerate(("a\nb", "a/../b", "%ff", "-", "\u202e", " ", "..")):
        done = five_nodes.zonectl("kv", "put", zone, "--", key, f"cli {number}")
        assert done.returncode == 0, done.stderr
        got = five_nodes.zonectl("kv", "get", zone, "--", key)
        assert (got.returncode, got.stdout) == (0, f"cli {number}\n"), got.stderr
        assert len(done.stdout.splitlines()) == 2, "a key with line breaks forges no line"


@pytest.mark.parametrize(
    "arguments",
    [
        (b"kv", b"put", b"keyed", b"k\xff", b"v"),
        (b"kv", b"put", b"keyed", b"k", b"v\xff"),
        (b"kv", b"get", b"keyed\xff", b"k"),
        (b"kv", b"put", b"keyed", b"k", b"v", b"--operation-id", "é".encode()),
        (b"sql", b"-e", b"SHOW ZONES -- \xff"),
        (b"node", b"can-stop", b"n\xff"),
        (b"operations", b"pause", b"1-1", b"--reason", b"\xff"),
    ],
)
def test_zonectl_refuses_bytes_that_are_no_text(five_nodes: Installation, arguments: tuple[bytes, ...]) -> None:
    command = [each.encode() for each in ZONECTL]
    done = subprocess.run(
        [*command, *arguments, b"--url", five_nodes.url.encode()], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 64, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert b"not UTF-8 text" in done.stderr or b"operation id" in done.stderr


@pytest.mark.thorough("unit/test_addresses has every route")
@pytest.mark.parametrize("profile", ["default", "bulk"])
@pytest.mark.parametrize("name", in_every_run(ZONES, [ZONES[0], ZONES[-1]]))
def test_a_zone_is_reached_by_every_route_and_command(
    five_nodes: Installation, name: str, profile: str
) -> None:
    """Recoveries of groups know no zone of store servers, and the reset of lost partitions no other."""
    quoted = '"' + name.replace('"', '""') + '"'
    statement = f"CREATE ZONE {quoted} (PARTITIONS 1, REPLICAS 2) STORAGE PROFILES ['{profile}']"
    created = five_nodes.zonectl("sql", "-e", statement, "--wait")
    assert created.returncode == 0, created.stderr
    try:
        published = f"/api/v1/zones/{segment(name)}/partition-map"
        wait_for("its map", lambda: five_nodes.get(published)["zone"] == name)
        document = five_nodes.get("/openapi.json")
        paths = {path: methods for path, methods in document["paths"].items() if "{zone}" in path}
        assert len(paths) >= 9
        with five_nodes.access.client(ANSWER_S) as client:
            assert client.put(path_of("zones", name, "kv", "k/1"), json={"value": "v"}).json()["zone"] == name
            for path, methods in paths.items():
                address = path.replace("{zone}", segment(name)).replace("{key}", segment("k/1"))
                for method in set(methods) - {"put", "delete"}:
                    body = {} if "recovery" not in path or path.endswith("lost") else {"dry_run": True}
                    told = client.request(
                        method, address.replace("{partition}", "0"), json=body if method == "post" else None
                    )
                    recovery = path.rpartition("/recovery/")[2] if method == "post" else ""
                    refusal = REFUSED_RECOVERIES[profile].get(recovery)
                    answer = told.json()
                    if refusal is not None:
                        assert (told.status_code, answer["name"]) == (409, refusal), (path, told.text)
                    else:
                        assert told.status_code == 200, (path, told.text)
                        assert answer.get("zone", name) == name
        with five_nodes.access.browser(ANSWER_S) as browser:
            page = browser.get(f"/console/zones/{quote(name, safe='')}")
            assert page.status_code == 200
            assert "does not exist" not in page.text
        for command in (
            ("kv", "get", quoted, "k/1"),
            ("verify", quoted),
            ("recovery", "states", quoted),
            ("operations", "--zone", quoted),
            ("rebalance", "pause", "--zone", quoted, "--by", "me"),
            ("rebalance", "resume", "--zone", quoted),
        ):
            done = five_nodes.zonectl(*command)
            assert done.returncode == 0, (command, done.stderr)
        assert raw(five_nodes, "DELETE", path_of("zones", name, "kv", "k/1"))[0] == 200
        assert raw(five_nodes, "GET", path_of("zones", name, "kv", "k/1"))[0] == 404
    finally:
        dropped = five_nodes.zonectl("sql", "-e", f"DROP ZONE {quoted}", "--wait")
    assert dropped.returncode == 0, dropped.stderr


def test_what_people_write_forges_no_line(five_nodes: Installation, zone: str) -> None:
    """A reason is one line of what can be seen. A statement may have lines and signs of a terminal in its
    comments: tables show them escaped, JSON has them."""
    forged = "new disks\nn9  yes  \u202egnirts"
    paused = five_nodes.zonectl("rebalance", "pause", "--zone", zone, "--by", "eve", "--reason", forged)
    assert paused.returncode == 1
    assert "a reason must be one line of visible text, without U+000A" in paused.stderr
    altered = five_nodes.zonectl("sql", "-e", f"ALTER ZONE {zone} /* {forged} */ SET (AUTO SCALE UP 7)")
    assert altered.returncode == 0, altered.stderr
    newest = "SELECT statement FROM events ORDER BY catalog_version DESC LIMIT 1"
    told = (
        (("audit",), "new disks n9 yes \\u202egnirts"),
        (("sql", "-e", newest), "new disks\\nn9  yes  \\u202egnirts"),
        (("sql", "-e", newest, "--format", "json"), "new disks\\nn9  yes  \\u202egnirts"),
    )
    for command, escaped in told:
        shown = five_nodes.zonectl(*command).stdout
        assert escaped in shown, shown
        assert "\u202e" not in shown
