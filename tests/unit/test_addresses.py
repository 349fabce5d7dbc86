"""Every name and key that is UTF-8 can be in a path, each in its own; what is no UTF-8 is refused."""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.convertors import StringConvertor

from app.api.addresses import one_spelling
from app.api.bodies import check_json
from app.api.callers import routes_of
from app.bootstrap.server import build_app
from app.cli.client import path_of, segment
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.snapshot import CatalogSnapshot
from catalog.core.visible import hidden_character
from catalog.core.zone import Origin, Zone
from tests.fixtures.partial_services import services_with
from tests.unit.operations_world import OperationsWorld, operations_world

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
OF_GROUPS = {f"/api/v1/zones/{{zone}}/{rest}" for rest in ("kv/{key}", "verify", "routing")}
"""Routes that need members of groups, which this world has not: tests/e2e/test_names_and_keys.py asks them."""


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[OperationsWorld]:
    async with operations_world(tmp_path) as made:
        yield made


@given(TEXTS, TEXTS)
def test_a_path_has_its_texts_whatever_they_are(zone: str, key: str) -> None:
    """And one spelling: what a client need not encode changes nothing."""
    sent = path_of("zones", zone, "kv", key).encode()
    path = one_spelling(sent)
    assert one_spelling(path.encode()) == path
    parts = path.split("/")
    assert [unquote_to_bytes(part).decode() for part in (parts[4], parts[6])] == [zone, key]
    assert len(parts) == 7
    spelled_out = "".join(f"%{byte:02x}" for byte in zone.encode())
    assert one_spelling(sent.replace(segment(zone).encode(), spelled_out.encode())) == path


def test_every_text_of_a_path_is_decoded_by_its_route(tmp_path: Path) -> None:
    """A converter of the framework's own would hand it over percent-encoded."""
    matched = 0
    for route in routes_of(build_app(services_with())):
        for name, converter in getattr(route, "param_convertors", {}).items():
            matched += 1
            is_number = name in ("partition", "n", "zone_id", "token")
            assert (type(converter) is StringConvertor) == is_number, (route, name)
    assert matched > 30


def _names(count: int) -> Iterator[str]:
    """That CREATE takes: signs of addresses, HTML, SQL and shells, and letters of any script."""
    chosen = random.Random(11)
    signs = "/?#%&=+;:@!$'\"()*,[]{}|\\^`~<> .-_"
    letters = "aB0éß東🙂\u0301\xa0ไ"
    yield from ("a/b?c#d", "%", "%2f", "%00", "...", "kv/x", "a/partitions/0", "//", "?", "zones", "İ")
    for _ in range(count):
        name = "".join(chosen.choices(signs + letters, k=chosen.randint(1, 12)))
        if name not in (".", "..") and name.strip():
            yield name


async def test_what_create_takes_is_reached_by_every_route(api: OperationsWorld) -> None:
    document = (await api.http.get("http://api/openapi.json")).json()
    routes = [
        (method, path)
        for path, methods in document["paths"].items()
        for method in methods
        if "{zone}" in path and path not in OF_GROUPS
    ]
    assert len(routes) >= 6
    for zone_id, name in enumerate(_names(6), 1):
        doubled = name.replace('"', '""')
        await api.run(f'CREATE ZONE "{doubled}" (PARTITIONS 1, REPLICAS 1)')
        for method, path in routes:
            address = path.replace("{zone}", segment(name)).replace("{partition}", "0")
            body = {} if method == "post" else None
            answer = await api.http.request(method, f"http://api{address}", json=body)
            told = answer.json()
            assert told.get("name") not in ("ZONE_NOT_FOUND", "ADDRESS_NOT_FOUND"), (method, path, name)
            if answer.status_code == 200 and "zone" in told:
                assert told["zone"] == name
        listed = await api.get("/operations", zone=name)
        assert {each["zone_id"] for each in listed["operations"]} == {zone_id}
        await api.run(f'DROP ZONE "{doubled}"')


NO_UTF8 = (
    "/api/v1/zones/k%ff",
    "/api/v1/zones/k%fe/kv/a",
    "/api/v1/zones/z/kv/%ed%a0%80",
    "/api/v1/zones/z/kv/%c0%af",
    "/api/v1/zones/z/kv/a%",
    "/api/v1/zones/z/kv/a%2",
    "/api/v1/nodes/%ff/can-stop",
    "/api/v1/operations/%ff",
    "/api/v1/statements/%ff",
    "/v1/statement/executing/%ff/1",
    "/api/v1/audit?by=%ff",
    "/api/v1/operations?zone=%fe",
    "/nothing/%ff",
)


async def test_what_is_no_utf8_is_refused(api: OperationsWorld) -> None:
    for address in NO_UTF8:
        answer = await api.http.get(f"http://api{address}")
        assert (answer.status_code, answer.json()["name"], answer.json()["code"]) == (
            400,
            "TEXT_NOT_UTF8",
            8201,
        )
        assert answer.headers["content-type"] == "application/problem+json"


HALF = '"\\ud800"'


HALVES = (
    ("PUT", "/zones/z/kv/k", f'{{"value": {HALF}}}'),
    ("POST", "/statements", f'{{"sql": {HALF}}}'),
    ("POST", "/plan", f'{{"files": [{{"name": {HALF}, "text": ""}}]}}'),
    ("PUT", "/nodes/n1/drain", f'{{"by": "x", "reason": {HALF}}}'),
    ("PUT", "/nodes/n1/drain", f'{{"by": {HALF}}}'),
    ("PATCH", "/rebalance/limits", f'{{"zone_pauses": {{{HALF}: null}}}}'),
    ("POST", "/operations/1-1/pause", f'{{"reason": {HALF}}}'),
    ("POST", "/zones/z/verify", f'{{"saved": [{{"partition": 0, "keys": [{HALF}]}}]}}'),
    ("POST", "/zones/z/recovery/restart", f'{{"nodes": [{HALF}]}}'),
)


async def test_half_a_character_is_refused(api: OperationsWorld) -> None:
    escaped = [(method, path, body.encode()) for method, path, body in HALVES]
    plain = [
        (*each, body.replace(b"\\ud800", "\ud800".encode(errors="surrogatepass"))) for *each, body in escaped
    ]
    for method, path, sent in (*escaped, *plain):
        answer = await api.http.request(
            method, path, content=sent, headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, answer.json()["name"]) == (400, "TEXT_NOT_UTF8"), answer.text
    assert (await api.get("/audit"))["records"] == []


async def test_a_header_that_is_no_utf8_is_refused(api: OperationsWorld) -> None:
    answer = await api.http.get("/zones", headers={"Zonekeeper-By": "k%ff"})
    assert (answer.status_code, answer.json()["name"]) == (400, "TEXT_NOT_UTF8")


ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=30)


@given(ANY_TEXT, st.booleans())
def test_json_is_refused_for_halves_alone(text: str, escaped: bool) -> None:
    """Halves are refused whatever is beside them: pairs, backslashes, and what only looks like an escape."""
    body = json.dumps({text: ["\\ud800", text]}, ensure_ascii=escaped).encode(errors="surrogatepass")
    read = json.loads(body)
    if not _has_half(read):
        check_json(body)
        return
    with pytest.raises(RefusedError) as refused:
        check_json(body)
    assert refused.value.kind is ErrorKind.TEXT_NOT_UTF8


def _has_half(read: object) -> bool:
    return re.search("[\ud800-\udfff]", json.dumps(read, ensure_ascii=False)) is not None


async def test_who_asks_can_be_seen(api: OperationsWorld) -> None:
    """Drains, pauses and what is asked of operations; a reason may have lines."""
    for by, (method, path, field) in product(
        ("a\nb", "a\x1b[2J", "a\u202eb", "a\u200bb", "\x00"),
        (
            ("PUT", "/nodes/n1/drain", None),
            ("PATCH", "/rebalance/limits", "pause"),
            ("POST", "/operations/1-1/cancel", None),
        ),
    ):
        pause = {"by": by, "reason": "two\nlines"}
        body = pause if field is None else {field: pause}
        answer = await api.http.request(method, path, json=body)
        assert (answer.status_code, answer.json()["name"]) == (400, "INVALID_REQUEST"), answer.text
        assert "may not have a character that cannot be seen" in answer.json()["detail"]


async def test_a_name_that_is_stored_can_be_listed_renamed_and_dropped(api: OperationsWorld) -> None:
    """Catalogs hold such names from before they were refused."""
    names = ("a\nb", "x\u202ey", "..", "tab\tbed")
    assert all(name == ".." or hidden_character(name) for name in names)
    for number, name in enumerate(names, 1):
        await api.run(f"CREATE ZONE plain{number} (PARTITIONS 1)")
        await api.world.catalog.restore(partial(_renamed, number, name), f"as {number} was", Origin())
        await api.reconcile()
        assert name in [each["name"] for each in (await api.get("/zones"))["zones"]]
        assert (await api.get(f"/zones/{segment(name)}"))["zone_id"] == number
        await api.run(f'ALTER ZONE "{name}" RENAME TO "seen {number}"')
        assert (await api.get(f"/zones/{quote(f'seen {number}')}"))["zone_id"] == number
        await api.run(f'DROP ZONE "seen {number}"')


def _renamed(number: int, name: str, catalog: CatalogSnapshot) -> Zone:
    zone = catalog.zone(f"PLAIN{number}")
    assert zone is not None
    return replace(zone, name=name)


@pytest.mark.parametrize("epoch", ["5", True, 1.5])
async def test_an_epoch_is_a_number(api: OperationsWorld, epoch: object) -> None:
    body = {"epoch": epoch, "kind": "", "reason": ""}
    answer = await api.http.post("/metastore/adopt", json=body)
    assert (answer.status_code, answer.json()["name"]) == (400, "INVALID_REQUEST"), answer.text
    assert answer.json()["detail"].startswith("body.epoch: ")
