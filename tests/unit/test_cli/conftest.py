from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.unit.test_cli.stub import ApiStub, serve


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No variable of the user's, and a current directory without a data directory."""
    for name in [name for name in os.environ if name.startswith("ZONEKEEPER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path_factory.mktemp("cwd"))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiStub]:
    """A stub that ZONEKEEPER_URL points to."""
    stub = ApiStub()
    server = serve(stub)
    monkeypatch.setenv("ZONEKEEPER_URL", stub.url)
    yield stub
    server.shutdown()
    server.server_close()
