"""``zonectl alerts`` over a stub of the API."""

from __future__ import annotations

import json

import pytest

from app.alerts.shown_alerts import alert_body
from app.cli.main import main
from rebalance.core.alert_state import Alert
from tests.fixtures.alert_faults import DOWN, EVERY, OVER
from tests.fixtures.api_stub import ApiStub


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
