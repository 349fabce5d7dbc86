"""``zonectl metastore``: what it says, asks and sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.cli.main import main
from tests.fixtures.api_stub import ApiStub

AGREED = {
    "state": "AGREED",
    "kind": "",
    "reason": "",
    "epoch": 1,
    "revision": 42,
    "cluster_id": "ab",
    "catalog_version": 7,
}
DIVERGED = {**AGREED, "state": "DIVERGED", "kind": "METASTORE_WENT_BACK", "reason": "etcd was seen later"}
DONE: dict[str, Any] = {"adopted": True, "epoch": 2, "catalog_version": 8, "published": 3, "dropped": ["OLD"]}
ADOPT = "POST /api/v1/metastore/adopt"


def test_status(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers["GET /api/v1/metastore"] = (200, AGREED)
    assert main(["metastore", "status"]) == 0
    line = "AGREED: epoch 1, catalog version 7, etcd cluster ab at revision 42"
    assert capsys.readouterr().out.splitlines() == [line]
    api.answers["GET /api/v1/metastore"] = (200, DIVERGED)
    assert main(["metastore", "status"]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == ["etcd was seen later"]
    assert main(["metastore", "status", "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out) == DIVERGED


def test_nothing_is_adopted_unasked(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers["GET /api/v1/metastore"] = (200, DIVERGED)
    api.answers[ADOPT] = (200, DONE)
    assert main(["metastore", "adopt"]) == 64
    assert "--yes" in capsys.readouterr().err
    assert [each.method for each in api.requests] == ["GET"]


def test_adopt(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """The request names the trouble that was shown, with --yes as well."""
    api.answers["GET /api/v1/metastore"] = (200, DIVERGED)
    api.answers[ADOPT] = (200, DONE)
    assert main(["metastore", "adopt", "--yes"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "epoch 2: 3 zones published again, dropped: OLD\n"
    assert shown.err == "epoch 1, METASTORE_WENT_BACK: etcd was seen later\n"
    assert [each.method for each in api.requests] == ["GET", "POST"]
    assert api.requests[1].body == {
        "epoch": 1,
        "kind": "METASTORE_WENT_BACK",
        "reason": "etcd was seen later",
    }
    api.answers["GET /api/v1/metastore"] = (200, AGREED)
    api.answers[ADOPT] = (200, {**DONE, "adopted": False, "epoch": 1, "published": 0, "dropped": []})
    assert main(["metastore", "adopt", "--yes"]) == 0
    assert capsys.readouterr().out == "catalog and etcd agree (epoch 1): nothing was done\n"


def test_refused(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers["GET /api/v1/metastore"] = (200, DIVERGED)
    api.problem(ADOPT, 409, "SHOWN_STATE_CHANGED", "they are now: epoch 2", sqlState="40001")
    assert main(["metastore", "adopt", "--yes"]) == 1
    assert "SHOWN_STATE_CHANGED (40001): they are now: epoch 2" in capsys.readouterr().err
    api.problem(ADOPT, 503, "METASTORE_UNAVAILABLE", "etcd does not answer", sqlState="58000")
    assert main(["metastore", "adopt", "--yes"]) == 1
    assert "METASTORE_UNAVAILABLE (58000): etcd does not answer" in capsys.readouterr().err
    assert main(["metastore", "status", "--format", "csv"]) == 64
