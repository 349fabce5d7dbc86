"""``zonectl kv``: conditions, the time that is waited, and writes that earlier commands have given up."""

from __future__ import annotations

import json
import time

import pytest

from app.cli.address import contexts_file
from app.cli.kv import FILE_NAME, KEPT_S, GivenUpWrites
from app.cli.main import main
from tests.fixtures.api_stub import ApiStub

KEY = "/api/v1/zones/ORDERS/kv/o-17"
OTHER = "/api/v1/zones/ORDERS/kv/o-18"
STORED = {
    "zone": "ORDERS",
    "key": "o-17",
    "partition": 5,
    "operation_id": "op",
    "repeated": False,
    "revision": 9,
}
PUT = ["kv", "put", "orders", "o-17"]


def abandoned(api: ApiStub) -> list[str]:
    return [request.headers.get("Zonekeeper-Abandons", "") for request in api.requests]


def test_the_next_write_of_the_key_abandons_what_was_given_up(api: ApiStub) -> None:
    """Whichever command does, until one is acknowledged. Writes of other keys name nothing."""
    api.problem(f"PUT {KEY}", 504, "OUTCOME_UNKNOWN", "no majority answered", sqlState="40003")
    api.answers[f"PUT {OTHER}"] = api.answers[f"DELETE {KEY}"] = (200, STORED)
    assert main([*PUT, "A", "--operation-id", "a"]) == 4
    assert main([*PUT, "A", "--operation-id", "b", "--format", "json"]) == 4
    assert main(["kv", "put", "orders", "o-18", "v"]) == 0
    assert main(["kv", "delete", "orders", "o-17"]) == 0
    api.answers[f"PUT {KEY}"] = (200, STORED)
    assert main([*PUT, "B"]) == 0
    assert abandoned(api) == ["", "a", "", "a b", ""]


def test_what_is_sent_again_is_not_abandoned(api: ApiStub) -> None:
    api.problem(f"PUT {KEY}", 504, "OUTCOME_UNKNOWN", "no majority answered", sqlState="40003")
    assert main([*PUT, "A", "--operation-id", "a"]) == 4
    assert main([*PUT, "A", "--operation-id", "a"]) == 4
    assert abandoned(api) == ["", ""]


def test_no_answer_in_time_is_given_up(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    def slow(_: object) -> tuple[int, dict[str, object]]:
        time.sleep(1.3)
        return 200, STORED

    api.answers[f"PUT {KEY}"] = slow
    assert main([*PUT, "A", "--operation-id", "a", "--timeout", "0.1"]) == 4
    assert "repeat it with --operation-id a" in capsys.readouterr().err
    api.answers[f"PUT {KEY}"] = (200, STORED)
    assert main([*PUT, "B"]) == 0
    assert abandoned(api) == ["", "a"]
    assert [request.headers.get("Zonekeeper-Timeout") for request in api.requests] == ["0.100", None]


def test_a_file_that_cannot_be_written_is_told_and_no_more(
    api: ApiStub, capsys: pytest.CaptureFixture[str]
) -> None:
    file = contexts_file().with_name(FILE_NAME)
    file.parent.parent.mkdir(parents=True, exist_ok=True)
    file.parent.write_text("in the place of the directory")
    api.problem(f"PUT {KEY}", 504, "OUTCOME_UNKNOWN", "no majority answered", sqlState="40003")
    assert main([*PUT, "A", "--operation-id", "a"]) == 4
    warning, *answer = capsys.readouterr().err.splitlines()
    assert warning.endswith("; the next put does not abandon this one")
    assert answer[-1] == "repeat it with --operation-id a"


def test_conditions_are_sent_and_do_not_go_together(api: ApiStub, capsys: pytest.CaptureFixture[str]) -> None:
    api.problem(f"PUT {KEY}?if_absent=true", 409, "KEY_EXISTS", "the key is at revision 9", sqlState="23505")
    api.answers[f"DELETE {KEY}?if_revision=9"] = (200, STORED)
    assert main([*PUT, "A", "--if-absent"]) == 1
    assert "KEY_EXISTS" in capsys.readouterr().err
    assert main(["kv", "delete", "orders", "o-17", "--if-revision", "9"]) == 0
    assert main([*PUT, "A", "--if-absent", "--if-revision", "9"]) == 64
    assert len(api.requests) == 2


def test_what_cannot_be_read_or_is_old_is_nothing(api: ApiStub) -> None:
    writes, file = GivenUpWrites(api.url, "ORDERS", "o-17"), contexts_file().with_name(FILE_NAME)
    writes.add("a")
    assert writes.of(but="") == ("a",)
    body = json.loads(file.read_text())
    for ids in body.values():
        ids["a"] -= 2 * KEPT_S
    file.write_text(json.dumps(body))
    assert writes.of(but="") == ()
    file.write_text("not JSON")
    assert writes.of(but="") == ()
    writes.add("b")
    assert writes.of(but="") == ("b",)
