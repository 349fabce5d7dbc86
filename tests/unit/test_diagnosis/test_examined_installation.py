"""The installation that is examined: where it listens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.configuration.settings import Settings
from app.diagnosis.examined_installation import read_installation

PORTS = {"v": 1, "api": 7000, "https": 7443, "etcd_client": 7379, "etcd_peer": 7380}


@pytest.mark.parametrize(
    ("url", "host", "api"),
    [
        ("https://192.0.2.7:7443", "127.0.0.1", "192.0.2.7"),
        ("https://127.0.0.1:7443", "0.0.0.0", "127.0.0.1"),
        (None, "192.0.2.7", "192.0.2.7"),
        (None, "127.0.0.1", "127.0.0.1"),
    ],
)
def test_the_api_is_where_it_runs_or_would(url: str | None, host: str, api: str, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps(PORTS))
    if url is not None:
        (tmp_path / "run.json").write_text(json.dumps({"url": url}))
    assert read_installation(tmp_path, Settings(host=host)).listening == {
        "API over HTTP": f"{api}:7000",
        "API over HTTPS": f"{api}:7443",
        "etcd": "127.0.0.1:7379",
        "peers of etcd": "127.0.0.1:7380",
    }
