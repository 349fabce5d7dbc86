"""``zonectl alerts`` over a stub of the API."""

from __future__ import annotations

import json

import pytest

from app.alerts.shown_alerts import alert_body, silence_body
from app.cli.main import main
from app.core.alerts import Alert, Silence
from tests.fixtures.alert_faults import DOWN, EVERY, OVER
from tests.fixtures.api_stub import ApiStub

SILENCE = Silence("NodeDown", (("node", "n3"),), 0, 7_200_000, "alice", "new disks")
ID = SILENCE.silence_id


@pytest.mark.parametrize(
    ("alerts", "code", "shown"),
    [
        ([], 0, "no alert fires or is pending"),
        ([OVER], 0, "no alert fires"),
        ([DOWN], 1, "pending"),
        (EVERY, 1, "firing"),
    ],
)
def test_zonectl_shows_what_is_pending_and_is_1_then(
    alerts: list[Alert], code: int, shown: str, api: ApiStub, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that says that nothing fires while something is about to would be taken for all is well."""
    api.answers["GET /api/v1/alerts"] = (
        200,
        {"judged_at": None, "alerts": [alert_body(each) for each in alerts]},
    )
    assert main(["alerts"]) == code
    assert shown in capsys.readouterr().out
    assert main(["alerts", "--format", "json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in told] == [each.name for each in alerts if each is not OVER]


def test_what_is_silenced_is_listed_and_is_no_failure(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    """An earlier server says nothing of silences."""
    silenced = alert_body(DOWN, SILENCE)
    api.answers["GET /api/v1/alerts"] = (200, {"judged_at": None, "alerts": [silenced, alert_body(OVER)]})
    assert main(["alerts"]) == 0
    assert "pending, silenced" in capsys.readouterr().out
    earlier = {name: value for name, value in silenced.items() if name != "silence"}
    api.answers["GET /api/v1/alerts"] = (200, {"judged_at": None, "alerts": [silenced, earlier]})
    assert main(["alerts"]) == 1


def test_what_has_ended(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    for alerts, shown in (([], "no alert has ended"), ([alert_body(OVER)], "1970-01-01T00:00:02Z")):
        api.answers["GET /api/v1/alerts?state=resolved"] = (200, {"judged_at": None, "alerts": alerts})
        assert main(["alerts", "--ended"]) == 0
        assert shown in capsys.readouterr().out
    assert main(["alerts", "--ended", "--all"]) == 64


def test_silence(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers["POST /api/v1/alerts/silences"] = (201, {**silence_body(SILENCE), "alerts": 1})
    line = ["alerts", "silence", "NodeDown", "node=n3", "--for", "2h", "--reason", "new disks"]
    assert main([*line, "--by", "alice"]) == 0
    assert capsys.readouterr().out == (
        f"silence {ID} of NodeDown node=n3 until 1970-01-01T02:00:00Z; it holds back 1 alert now\n"
    )
    assert main(["alerts", "silence", "zone=a=b", "--for", "30m", "--reason", "x"]) == 0
    assert [request.body for request in api.requests] == [
        {"alert": "NodeDown", "labels": {"node": "n3"}, "for_s": 7_200, "by": "alice", "reason": "new disks"},
        {"alert": None, "labels": {"zone": "a=b"}, "for_s": 1_800, "by": None, "reason": "x"},
    ]


@pytest.mark.parametrize(
    "line",
    [
        "silence --for 1h --reason x",
        "silence NodeDown --reason x",
        "silence NodeDown --for 1h",
        "silence NodeDown --for soon --reason x",
        "silence NodeDown RelayLag --for 1h --reason x",
        "silence NodeDown node= --for 1h --reason x",
        "silence NodeDown node=n1 node=n2 --for 1h --reason x",
        "unsilence",
    ],
)
def test_wrong_usage_asks_nobody(line: str, api: ApiStub) -> None:
    assert main(["alerts", *line.split()]) == 64
    assert api.requests == []


def test_silences_and_their_end(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    for silences, shown in (([], "no alert is silenced"), ([silence_body(SILENCE)], "NodeDown node=n3")):
        api.answers["GET /api/v1/alerts/silences"] = (200, {"silences": silences})
        assert main(["alerts", "silences"]) == 0
        assert shown in capsys.readouterr().out
    for changed, text in ((True, "ended"), (False, "did not hold")):
        api.answers[f"DELETE /api/v1/alerts/silences/{ID}"] = (200, {"silence_id": ID, "changed": changed})
        assert main(["alerts", "unsilence", ID]) == 0
        assert capsys.readouterr().out == f"silence {ID} {text}\n"
