"""Probes run side by side; one that hangs or raises takes nothing from the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from app.diagnosis.checks import Check, CheckVerdict
from app.diagnosis.examination import Probe, run_probes

GOOD = Check("good", "1", "none", CheckVerdict.OK)
PATIENCE_S = 120.0


def test_a_probe_that_hangs_is_a_failed_check_after_what_it_gave() -> None:
    never = threading.Event()

    def hangs() -> Iterator[Check]:
        yield GOOD
        never.wait(PATIENCE_S)
        yield GOOD

    try:
        found = run_probes([Probe("slow", hangs, "end it"), Probe("quick", lambda: [GOOD], "")], 1.0)
    finally:
        never.set()
    assert [check.name for check in found] == ["good", "slow", "good"]
    assert found[1] == Check(
        "slow", "no answer within 1 s", "fail without an answer", CheckVerdict.FAIL, "end it"
    )


def test_a_probe_that_raises_is_a_failed_check_with_the_first_line() -> None:
    def raises() -> Iterator[Check]:
        raise OSError("disk on fire\nand more")
        yield GOOD

    found = run_probes([Probe("disk", raises, "run"), Probe("quick", lambda: [GOOD], "")], PATIENCE_S)
    assert [(check.name, check.value, check.verdict) for check in found] == [
        ("disk", "disk on fire", CheckVerdict.FAIL),
        ("good", "1", CheckVerdict.OK),
    ]


def test_probes_do_not_wait_for_each_other() -> None:
    """Each of two waits for the other: one after the other they would never end."""
    both = threading.Barrier(2)

    def meets() -> Iterator[Check]:
        both.wait(PATIENCE_S)
        yield GOOD

    found = run_probes([Probe("a", meets, ""), Probe("b", meets, "")], PATIENCE_S)
    assert found == [GOOD, GOOD]


def test_a_time_limit_is_told_in_words() -> None:
    """Texts of libraries name lines of their own source, and are left out."""

    def late() -> Iterator[Check]:
        raise TimeoutError("_ssl.c:989: The handshake operation timed out")
        yield GOOD

    (found,) = run_probes([Probe("etcd", late, "")], PATIENCE_S)
    assert found.value == "no answer in time"
