"""Probes of a server, through its API as its user, and of the certificate that it shows."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import httpx
from cryptography import x509

from app.diagnosis import checks
from app.diagnosis.checks import OUT_OF_ORDER, Check, CheckVerdict
from app.process.build import own_version

Ask = Callable[[str, float], httpx.Response]
"""A path and the time limit in seconds: the answer to a GET. Raises httpx.HTTPError."""
Query = Callable[[str], Mapping[str, Any]]
"""A SELECT: its outcome, with ``columns`` and ``data``. Raises RuntimeError when it is refused, and OSError."""
CALL_S = 4.0
RENEWAL = (
    "Replace the file of ZONEKEEPER_HTTPS_CERTIFICATE: the server reads it again. `zonectl up` renews its own; "
    "if the file is newer, restart the server."
)


def readiness(ask: Ask) -> Iterator[Check]:
    """The server's own report, and its clock."""
    asked = datetime.now(UTC)
    answer = ask("/readyz", CALL_S)
    answered = datetime.now(UTC)
    yield from _state(answer)
    if date := answer.headers.get("date"):
        yield checks.clock("the server", checks.skew_s(parsedate_to_datetime(date), asked, answered))


def document(ask: Ask) -> Iterator[Check]:
    """The server's version."""
    answer = ask("/openapi.json", CALL_S)
    yield _refusal("version of the server", answer) or checks.server_version(
        str(answer.json()["info"]["version"]), own_version() or "not installed"
    )


def builds(ask: Ask) -> Iterator[Check]:
    """Check the versions of all processes, and members of groups in store zones; yields no check for a server
    without the route for upgrades."""
    answer = ask("/api/v1/upgrade", CALL_S)
    if answer.status_code != HTTPStatus.NOT_FOUND:
        refusal = _refusal("versions of processes", answer)
        yield refusal or checks.builds(answer.json())
        if refusal is None:
            yield checks.strays(answer.json())


def certificate(url: str) -> Iterator[Check]:
    """The one that is served, trusted or not; nothing without TLS. Raises OSError."""
    parts = urlsplit(url)
    if parts.scheme != "https" or parts.hostname is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((parts.hostname, parts.port or 443), CALL_S) as plain,
        context.wrap_socket(plain, server_hostname=parts.hostname) as secure,
    ):
        shown = secure.getpeercert(binary_form=True)
    if shown is None:
        raise OSError("the server shows no certificate")
    found = x509.load_der_x509_certificate(shown)
    lasts, now = (found.not_valid_before_utc, found.not_valid_after_utc), datetime.now(UTC)
    yield checks.certificate("certificate that the server shows", *lasts, now, RENEWAL)


def _state(answer: httpx.Response) -> Iterator[Check]:
    """Check that statements are taken; then yield a check for each thing that the server's judge reports as out
    of order."""
    body: dict[str, Any] = answer.json()
    state = str(body.get("state") or ("ready" if body["ready"] else "not ready"))
    parts = [f"{part} {body[part]}" for part in ("catalog", "metastore") if body.get(part) not in (None, "ok")]
    verdict = CheckVerdict.FAIL if not body["ready"] else CheckVerdict.OK
    yield checks.check_of(
        "server",
        "; ".join([state, *parts]),
        "fail when it takes no statements",
        verdict,
        "See `zonectl status`, and the server's log.",
    )
    if "degraded" in body:
        yield from map(checks.out_of_order, body["degraded"])
    else:
        action = "Log in (`zonectl login`) as a user with SEE ON SYSTEM."
        yield checks.check_of("what is out of order", "not shown", OUT_OF_ORDER, CheckVerdict.WARN, action)


def _refusal(name: str, answer: httpx.Response) -> Check | None:
    """None: it was answered."""
    if answer.status_code == HTTPStatus.OK:
        return None
    may_not = answer.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
    return Check(
        name,
        f"not known: HTTP {answer.status_code}",
        "warn when it is not known",
        CheckVerdict.WARN,
        "Log in (`zonectl login`) as a user with SEE ON SYSTEM." if may_not else "See the server's log.",
    )
