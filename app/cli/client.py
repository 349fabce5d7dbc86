"""The commands' shell around the API's requests. How it fails is in ``app.cli.problems``."""

from __future__ import annotations

import base64
import getpass
import ssl
import sys
from functools import partial
from typing import TypeVar
from urllib.parse import quote

import httpx

from app.cli.address import Address
from app.cli.exits import ExitCode, UsageError
from app.cli.output import say
from app.cli.problems import (
    JsonObject,
    NoAnswerError,
    ProblemDocument,
    ProblemError,
    UnreachableError,
    UntrustedError,
    json_object,
)
from app.cli.requests import READINESS, ApiCalls, Request
from rebalance.hosting.tls_handshakes import SharedContext

CONNECT_TIMEOUT_S = 5.0
T = TypeVar("T")


class ApiClient(ApiCalls):
    """One HTTP connection pool; safe to share between threads. Close it, or use it in a ``with``."""

    def __init__(self, address: Address, reason: str = "") -> None:
        """``reason`` goes along with everything that is asked."""
        self.address = address
        self._is_age_told = False
        # The environment's proxies are for the outside; a Zonekeeper is on this machine or near.
        self._http = httpx.Client(
            base_url=address.url,
            trust_env=False,
            headers={**_identity(reason), **_credential(address)},
            verify=_trusted(address),
            follow_redirects=False,
        )

    def __enter__(self) -> ApiClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def readiness(self) -> JsonObject:
        """The body of /readyz: ``ready`` false comes with 503 and is an answer, not a failure. Raises
        RequestError, also where the server keeps its details from this user."""
        response = self._answer(READINESS)
        body = json_object(response)
        if body is None or "ready" not in body:
            raise UnreachableError(self.address, f"/readyz answered HTTP {response.status_code}")
        if "catalog" not in body:
            # The route answers everybody; one that needs the same privilege says what is missing.
            self.nodes()
        return body

    def get_raw(self, path: str, timeout_s: float) -> httpx.Response:
        """The answer as it comes, whatever its status. Raises httpx.HTTPError."""
        return self._http.get(path, timeout=timeout_s)

    def send(self, request: Request[T]) -> T:
        """Raises RequestError."""
        response = self._answer(request)
        body = json_object(response)
        if body is None:
            raise UnreachableError(self.address, f"HTTP {response.status_code} without a JSON object")
        if response.is_success:
            self._tell_age(body)
            return request.decode(body)
        raise ProblemError(ProblemDocument.from_body(response.status_code, body))

    def _tell_age(self, body: JsonObject) -> None:
        """Once, to standard error: answers of a server that has lost its metastore are not of now."""
        since = body.get("metastore_silent_since")
        if since and not self._is_age_told:
            self._is_age_told = True
            say(f"As of {since}: the metastore has been silent since then.", out=sys.stderr)

    def _hint_of_https(self, error: httpx.TransportError) -> str:
        """A port of HTTPS ends a connection that begins without TLS."""
        url = self.address.url
        is_plain = url.startswith("http://") and isinstance(error, httpx.RemoteProtocolError)
        return f"; if the port is one of HTTPS, use https{url.removeprefix('http')}" if is_plain else ""

    def _answer(self, request: Request[T]) -> httpx.Response:
        limits = httpx.Timeout(request.timeout_s, connect=CONNECT_TIMEOUT_S)
        perhaps = "" if request.method == "GET" else "; whether it was carried out is not known"
        ask = partial(
            self._http.request,
            request.method,
            request.path,
            json=request.body,
            headers=request.headers,
            timeout=limits,
        )
        try:
            try:
                return ask()
            except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
                if request.method != "GET" or isinstance(error, httpx.ConnectError):
                    raise
                # A kept connection was closed just then, by the server or by another thread: this says nothing
                # of the server, and a question may be asked twice.
                return ask()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            if (doubt := _doubt_of_certificate(error)) is not None:
                raise UntrustedError(self.address, doubt) from error
            raise UnreachableError(self.address, str(error) or type(error).__name__) from error
        except httpx.TimeoutException as error:
            raise NoAnswerError(
                ExitCode.TIMED_OUT,
                f"{self.address.url} did not answer within {request.timeout_s:.0f} s{perhaps}",
            ) from error
        except httpx.TransportError as error:
            raise NoAnswerError(
                ExitCode.UNREACHABLE,
                f"the connection to {self.address.url} broke before an answer came ({error}){perhaps}"
                f"{self._hint_of_https(error)}",
            ) from error


def _doubt_of_certificate(error: BaseException) -> str | None:
    """Why the server's certificate is not trusted; None: that is not why it failed."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause.verify_message
        cause = cause.__cause__ or cause.__context__
    return None


def _credential(address: Address) -> dict[str, str]:
    """Nothing without TLS, whatever is known."""
    if not address.url.startswith("https://"):
        return {}
    if address.password is not None:
        text = ":".join(address.password).encode()
        return {"Authorization": f"Basic {base64.b64encode(text).decode()}"}
    return {"Authorization": f"Bearer {address.token}"} if address.token else {}


def _trusted(address: Address) -> ssl.SSLContext:
    """Raises UsageError."""
    if not address.url.startswith("https://"):
        # Trusts nobody, and costs nothing: reading the system's authorities takes longer than a request.
        return SharedContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return SharedContext.trusting(address.authority)
    except ssl.SSLError as error:
        raise UsageError(f"the authority of {address.url} is not a PEM certificate: {error}") from error


def _identity(reason: str) -> dict[str, str]:
    """Who asks and why, for what is kept of changes: the user's name, where there is one."""
    headers = {"Zonekeeper-Via": "cli"}
    if reason:
        headers["Zonekeeper-Reason"] = quote(reason, errors="replace")
    try:
        return {**headers, "Zonekeeper-By": quote(getpass.getuser(), errors="replace")}
    except (KeyError, OSError):
        return headers
