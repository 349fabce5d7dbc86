from __future__ import annotations

import os

import pytest

from tests.fixtures.api_stub import ApiStub


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No variable and no file of the user's, and a current directory without a data directory."""
    for name in [name for name in os.environ if name.startswith("ZONEKEEPER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    monkeypatch.chdir(tmp_path_factory.mktemp("cwd"))


@pytest.fixture
def api(stub: ApiStub) -> ApiStub:
    """The stub, by the name of what it stands for."""
    return stub
