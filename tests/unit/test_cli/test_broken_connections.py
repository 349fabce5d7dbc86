"""Requests of the command line whose connection breaks before an answer came."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from app.cli.address import Address
from app.cli.client import ApiClient
from app.cli.problems import NoAnswerError

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


class Breaking:
    """Closes the first ``broken`` connections behind their request; answers the others."""

    def __init__(self, broken: int) -> None:
        self.requests: list[bytes] = []
        self._broken = broken
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(f"http://127.0.0.1:{self._listener.getsockname()[1]}", "a test")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.requests.append(connection.recv(65_536).split(b"\r\n")[0])
                if len(self.requests) > self._broken:
                    connection.sendall(ANSWER)


@pytest.fixture
def breaking(request: pytest.FixtureRequest) -> Iterator[Breaking]:
    server = Breaking(request.param)
    yield server
    server.close()


@pytest.mark.parametrize("breaking", [1], indirect=True)
def test_a_question_is_asked_again(breaking: Breaking) -> None:
    with ApiClient(breaking.address) as client:
        assert client.ask("GET", "metastore") == {}
    assert breaking.requests == [b"GET /api/v1/metastore HTTP/1.1"] * 2


@pytest.mark.parametrize("breaking", [2], indirect=True)
def test_a_question_is_asked_twice_at_most(breaking: Breaking) -> None:
    with ApiClient(breaking.address) as client, pytest.raises(NoAnswerError, match="broke before an answer"):
        client.ask("GET", "metastore")
    assert len(breaking.requests) == 2


@pytest.mark.parametrize("breaking", [2], indirect=True)
def test_a_port_of_https_is_thought_of(breaking: Breaking) -> None:
    """A port of HTTPS closes a connection that begins without TLS, and the error names the URL to use."""
    url = breaking.address.url.replace("http://", "https://")
    with ApiClient(breaking.address) as client, pytest.raises(NoAnswerError, match=f"HTTPS, use {url}$"):
        client.ask("GET", "metastore")


@pytest.mark.parametrize("breaking", [1], indirect=True)
def test_a_change_is_sent_once(breaking: Breaking) -> None:
    with ApiClient(breaking.address) as client, pytest.raises(NoAnswerError, match="broke before an answer"):
        client.execute("DROP ZONE a")
    assert len(breaking.requests) == 1
