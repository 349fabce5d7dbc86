"""Requests that the edge refuses, and their errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from starlette.types import Scope

from app.api.bodies import media_type_refusal
from app.edge.headers import Fields
from app.edge.request_rules import HEADER_BYTES_MAX, HttpLimits, forwarded_refusal, refusal_of
from app.edge.trust import Trust, as_addressed, https_url
from catalog.core.errors import ErrorKind

OWN = "127.0.0.1:7400"
TRUST = Trust.parse("zones.example, db-1", "https://zones.example:8443", "10.0.0.0/8, ::1", "X-Forwarded-User")
PASSES = None


def scope_of(
    method: str = "GET",
    path: str = "/api/v1/zones",
    kind: str = "http",
    scheme: str = "http",
    client: str = "192.0.2.1",
    **headers: str,
) -> Scope:
    """``headers``: with underscores for dashes; Host is this server's own unless it is given."""
    pairs = {"host": OWN, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return {
        "type": kind,
        "method": method,
        "path": path,
        "scheme": scheme,
        "client": (client, 1),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs.items()],
    }


def media_type_verdict(scope: Scope) -> str | None:
    refusal = media_type_refusal(scope["method"], scope["path"], Fields.of(scope))
    return None if refusal is None else refusal.kind.name


def verdict(scope: Scope, trust: Trust = TRUST) -> str | None:
    sent = Fields.of(scope)
    scope = as_addressed(scope, sent, trust)
    limits = HttpLimits(body_bytes_max=1000)
    found = refusal_of(scope, Fields.of(scope), sent.all(b"host"), trust, limits)
    return None if found is None else found.kind.name


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:7400", PASSES),
        ("192.168.7.1", PASSES),
        ("[::1]:7400", PASSES),
        ("[fe80::1]", PASSES),
        ("localhost:7400", PASSES),
        ("LocalHost", PASSES),
        ("localhost.", PASSES),
        ("console.localhost:7400", PASSES),
        ("zones.example", PASSES),
        ("ZONES.example.:7400", PASSES),
        ("db-1:7400", PASSES),
        ("", PASSES),
        ("evil.test", "HOST_REFUSED"),
        ("evil.test:7400", "HOST_REFUSED"),
        ("zones.example.evil.test", "HOST_REFUSED"),
        ("127.0.0.1.evil.test", "HOST_REFUSED"),
        ("localhost.evil.test", "HOST_REFUSED"),
        ("evillocalhost", "HOST_REFUSED"),
        ("evil.test@127.0.0.1", "HOST_REFUSED"),
        ("127.0.0.1/evil.test", "HOST_REFUSED"),
        ("127.0.0.1#evil.test", "HOST_REFUSED"),
        ("127.0.0.1:port", "HOST_REFUSED"),
        ("127.1", "HOST_REFUSED"),
        ("2130706433", "HOST_REFUSED"),
        ("[::1", "HOST_REFUSED"),
        (":7400", "HOST_REFUSED"),
        ("null", "HOST_REFUSED"),
    ],
)
def test_hosts(host: str, expected: str | None) -> None:
    assert verdict(scope_of(host=host)) == expected
    assert verdict(scope_of(kind="websocket", scheme="ws", path="/console/_nicegui_ws/", host=host)) == expected


def test_without_a_host() -> None:
    """HTTP/1.0, as health checks of load balancers speak it."""
    scope = {**scope_of(), "headers": []}
    assert verdict(scope) is PASSES


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (f"http://{OWN}", PASSES),
        (f"HTTP://{OWN}", PASSES),
        ("https://zones.example:8443", PASSES),
        ("null", "ORIGIN_REFUSED"),
        ("", "ORIGIN_REFUSED"),
        ("http://evil.test", "ORIGIN_REFUSED"),
        ("http://127.0.0.1", "ORIGIN_REFUSED"),
        ("http://127.0.0.1:7401", "ORIGIN_REFUSED"),
        ("http://localhost:7400", "ORIGIN_REFUSED"),
        (f"https://{OWN}", "ORIGIN_REFUSED"),
        ("https://zones.example", "ORIGIN_REFUSED"),
        ("http://zones.example:8443", "ORIGIN_REFUSED"),
        (f"http://{OWN}.evil.test", "ORIGIN_REFUSED"),
        (f"http://evil.test@{OWN}", "ORIGIN_REFUSED"),
        (f"http://{OWN}/evil", "ORIGIN_REFUSED"),
        ("file://", "ORIGIN_REFUSED"),
        ("chrome-extension://abc", "ORIGIN_REFUSED"),
        ("http://127.0.0.1:99999", "ORIGIN_REFUSED"),
        (f"http://{OWN} http://evil.test", "ORIGIN_REFUSED"),
    ],
)
def test_origins(origin: str, expected: str | None) -> None:
    assert verdict(scope_of(origin=origin)) == expected
    post = scope_of("POST", "/api/v1/statements", content_type="application/json", origin=origin)
    assert verdict(post) == expected
    socket = scope_of(kind="websocket", scheme="ws", path="/console/_nicegui_ws/socket.io/", origin=origin)
    assert verdict(socket) == expected
    assert verdict(scope_of("OPTIONS", origin=origin, access_control_request_method="POST")) == expected


def test_default_ports_are_the_same_origin() -> None:
    assert verdict(scope_of(host="127.0.0.1", origin="http://127.0.0.1:80")) is PASSES
    assert verdict(scope_of(host="127.0.0.1:443", scheme="https", origin="https://127.0.0.1")) is PASSES
    assert verdict(scope_of(host="127.0.0.1:443", origin="https://127.0.0.1")) == "ORIGIN_REFUSED"


def test_every_origin_of_several_counts() -> None:
    scope = scope_of(origin=f"http://{OWN}")
    scope["headers"].append((b"origin", b"http://evil.test"))
    assert verdict(scope) == "ORIGIN_REFUSED"


@pytest.mark.parametrize(
    ("site", "mode", "expected"),
    [
        ("none", "navigate", PASSES),
        ("same-origin", "no-cors", PASSES),
        ("cross-site", "navigate", PASSES),
        ("cross-site", "no-cors", "ORIGIN_REFUSED"),
        ("same-site", "no-cors", "ORIGIN_REFUSED"),
        ("cross-site", "", "ORIGIN_REFUSED"),
    ],
)
def test_parts_of_pages_elsewhere(site: str, mode: str, expected: str | None) -> None:
    """Browsers name no origin with them; links are followed."""
    assert verdict(scope_of(sec_fetch_site=site, sec_fetch_mode=mode)) == expected


@pytest.mark.parametrize(
    ("method", "kind", "length", "expected"),
    [
        ("POST", "application/json", "2", PASSES),
        ("POST", "Application/JSON; charset=utf-8", "2", PASSES),
        ("POST", "application/vnd.zones+json", "2", PASSES),
        ("POST", "application/json", None, PASSES),
        ("POST", None, None, "MEDIA_TYPE_REFUSED"),
        ("POST", None, "0", "MEDIA_TYPE_REFUSED"),
        ("POST", None, "2", "MEDIA_TYPE_REFUSED"),
        ("POST", "text/plain", "2", "MEDIA_TYPE_REFUSED"),
        ("POST", "text/plain; application/json", "2", "MEDIA_TYPE_REFUSED"),
        ("POST", "text/json", "2", "MEDIA_TYPE_REFUSED"),
        ("POST", "application/x-www-form-urlencoded", "2", "MEDIA_TYPE_REFUSED"),
        ("POST", "multipart/form-data; boundary=application/json", "2", "MEDIA_TYPE_REFUSED"),
        ("PUT", "text/plain", "2", "MEDIA_TYPE_REFUSED"),
        ("PATCH", None, "2", "MEDIA_TYPE_REFUSED"),
        ("DELETE", None, None, PASSES),
        ("DELETE", "text/plain", "2", "MEDIA_TYPE_REFUSED"),
        ("GET", None, None, PASSES),
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/statements", "/api/v1/metastore/adopt", "/v1"])
def test_what_changes_something_is_json(
    method: str, kind: str | None, length: str | None, expected: str | None, path: str
) -> None:
    headers = {"content_type": kind, "content_length": length}
    scope = scope_of(method, path, **{name: value for name, value in headers.items() if value is not None})
    assert media_type_verdict(scope) == expected


def test_a_body_of_unknown_length_is_a_body() -> None:
    assert media_type_verdict(scope_of("DELETE", transfer_encoding="chunked")) == "MEDIA_TYPE_REFUSED"


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        ("POST", "/v1/statement", {}, "USER_REQUIRED"),
        ("POST", "/v1/statement", {"x_trino_user": " "}, "USER_REQUIRED"),
        ("POST", "/v1/statement", {"x_trino_user": "ada", "content_type": "text/plain"}, PASSES),
        ("POST", "/v1/anything", {}, "USER_REQUIRED"),
        ("GET", "/v1/statement/executing/1/1", {}, PASSES),
        ("DELETE", "/v1/statement/executing/1/1", {}, PASSES),
        ("HEAD", "/v1/statement", {}, PASSES),
        ("POST", "/v1/statement", {"x_trino_user": "ada", "origin": "null"}, "ORIGIN_REFUSED"),
        ("POST", "/console/_nicegui_ws/socket.io/", {"content_type": "text/plain"}, PASSES),
        ("POST", "/console/_nicegui_ws/socket.io/", {"origin": "http://evil.test"}, "ORIGIN_REFUSED"),
    ],
)
def test_the_protocol_of_drivers_and_the_console(
    method: str, path: str, headers: dict[str, str], expected: str | None
) -> None:
    assert verdict(scope_of(method, path, **headers)) == expected


def test_sizes() -> None:
    assert verdict(scope_of("POST", content_type="application/json", content_length="1000")) is PASSES
    for length in ("1001", "9" * 5000):
        scope = scope_of("POST", content_type="application/json", content_length=length)
        assert verdict(scope) == "REQUEST_TOO_LARGE"
    assert verdict(scope_of(cookie="a" * HEADER_BYTES_MAX)) == "HEADERS_TOO_LARGE"


def test_messages_are_short_and_printable() -> None:
    for headers in ({"host": "\x1b[2Jevil" + "x" * 500}, {"origin": "\x1b[2J" + "x" * 500}):
        scope = scope_of(**headers)
        found = refusal_of(scope, Fields.of(scope), [], TRUST, HttpLimits())
        assert found is not None
        assert found.message.isprintable()
        assert len(found.message) < 400


def seen(scope: Scope, trust: Trust = TRUST) -> dict[str, Any]:
    found = as_addressed(scope, Fields.of(scope), trust)
    names = {name.decode(): value.decode() for name, value in found["headers"]}
    return {"scheme": found["scheme"], "client": found["client"][0], **names}


FORWARDED = {
    "x_forwarded_proto": "https",
    "x_forwarded_host": "zones.example:8443",
    "x_forwarded_for": "203.0.113.9",
    "x_forwarded_user": "carol",
}


@pytest.mark.parametrize("client", ["192.0.2.1", "127.0.0.1", "", "11.0.0.1"])
def test_nobody_else_is_believed(client: str) -> None:
    """Headers that only a proxy may set are taken off, for whatever reads them later."""
    given = scope_of(client=client, forwarded="for=1", x_real_ip="203.0.113.9", **FORWARDED)
    assert seen(given) == {"scheme": "http", "client": client, "host": OWN}
    assert seen(given, Trust()) == {
        "scheme": "http",
        "client": client,
        "host": OWN,
    }


@pytest.mark.parametrize("name", ["forwarded", "x_real_ip", "x_forwarded_for", "x_forwarded_host"])
def test_what_was_forwarded_is_refused_where_nobody_logs_in(name: str) -> None:
    refusing = replace(Trust(), refuses_forwarded=True)
    fields = Fields.of(scope_of(**{name: "127.0.0.1"}))
    refusal = forwarded_refusal(fields, refusing)
    assert refusal is not None
    assert refusal.kind is ErrorKind.FORWARDED_REFUSED
    assert forwarded_refusal(fields, Trust()) is None
    assert forwarded_refusal(Fields.of(scope_of()), refusing) is None


def test_an_identity_header_of_any_name_is_taken_off() -> None:
    trust = Trust.parse(proxies="10.0.0.0/8", identity_header="Remote-Name")
    assert "remote-name" not in seen(scope_of(remote_name="carol"), trust)
    assert seen(scope_of(client="10.1.2.3", remote_name="carol"), trust)["remote-name"] == "carol"


@pytest.mark.parametrize("client", ["10.1.2.3", "::1", "::ffff:10.1.2.3"])
def test_a_listed_proxy_is_believed(client: str) -> None:
    found = seen(scope_of(client=client, **FORWARDED))
    assert (found["scheme"], found["client"], found["host"]) == ("https", "203.0.113.9", "zones.example:8443")
    assert found["x-forwarded-user"] == "carol"
    socket = scope_of(kind="websocket", scheme="ws", client=client, **FORWARDED)
    assert seen(socket)["scheme"] == "wss"
    own = {**FORWARDED, "origin": "https://zones.example:8443"}
    assert verdict(scope_of(client=client, **own), Trust(TRUST.hosts, proxies=TRUST.proxies)) is PASSES


def test_a_proxy_changes_only_what_it_names() -> None:
    found = seen(scope_of(client="10.1.2.3"))
    assert (found["scheme"], found["client"], found["host"]) == ("http", "10.1.2.3", OWN)
    down = seen(scope_of(client="10.1.2.3", scheme="https", x_forwarded_proto="http"))
    assert down["scheme"] == "http"
    assert seen(scope_of(client="10.1.2.3", x_forwarded_proto="gopher"))["scheme"] == "http"


def test_what_a_client_wrote_before_the_proxy_does_not_count() -> None:
    lists = {
        "x_forwarded_proto": "https, http",
        "x_forwarded_host": "evil.test, db-1",
        "x_forwarded_for": "203.0.113.1, 203.0.113.9, 10.0.0.8",
    }
    found = seen(scope_of(client="10.1.2.3", **lists))
    assert (found["scheme"], found["host"], found["client"]) == ("http", "db-1", "203.0.113.9")
    for unreadable in ("unknown", "203.0.113.1, _hidden", "evil\x1b[2J"):
        assert seen(scope_of(client="10.1.2.3", x_forwarded_for=unreadable))["client"] == "10.1.2.3"


def test_a_proxy_makes_no_foreign_name_known() -> None:
    """Neither the one that it was asked by, which a page of a rebound name can write, nor the one it asks."""
    named = {**FORWARDED, "x_forwarded_host": "evil.test"}
    assert verdict(scope_of(client="10.1.2.3", **named)) == "HOST_REFUSED"
    assert verdict(scope_of(client="10.1.2.3", host="evil.test", **FORWARDED)) == "HOST_REFUSED"


@pytest.mark.parametrize(
    "wrong",
    [
        {"hosts": "http://zones.example"},
        {"hosts": "zones.example:7400"},
        {"hosts": "zones.example/x"},
        {"origins": "zones.example"},
        {"origins": "null"},
        {"origins": "https://zones.example/console"},
        {"proxies": "zones.example"},
        {"proxies": "10.0.0.1/8"},
        {"identity_header": "X-Forwarded-User"},
    ],
)
def test_wrong_lists_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"host name|origin|proxy|prox"):
        Trust.parse(**wrong)


@pytest.mark.parametrize(
    ("host", "used", "url"),
    [
        ("127.0.0.1", "localhost:7400", "https://127.0.0.1:7443"),
        ("zones.example", "db-1", "https://zones.example:7443"),
        ("0.0.0.0", "db-1:7400", "https://db-1:7443"),
        ("::", "[fd00::1]:7400", "https://[fd00::1]:7443"),
        ("::1", "", "https://[::1]:7443"),
        ("0.0.0.0", "a@b", "https://0.0.0.0:7443"),
    ],
)
def test_the_address_of_https_is_one_that_the_client_reaches(host: str, used: str, url: str) -> None:
    scope = {"type": "http", "headers": [(b"host", used.encode())]}
    assert https_url(host, 7443, scope) == url
