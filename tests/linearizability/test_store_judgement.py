"""Answers that show two servers serving one partition."""

from __future__ import annotations

from rebalance.core.partition_maps.topology_version import TopologyVersion
from tests.linearizability.store_judgement import Served, second_primaries

V5, V6 = TopologyVersion(5), TopologyVersion(6)


def test_a_new_primary_answers_after_the_old_one() -> None:
    answers = [Served(0, "n1", V5, 0, 10), Served(0, "n2", V6, 11, 20), Served(1, "n1", V6, 11, 20)]
    assert second_primaries(answers) == []


def test_answers_of_two_primaries_may_meet_on_the_way() -> None:
    """The old one answered first; its answer came late."""
    assert second_primaries([Served(0, "n2", V6, 5, 12), Served(0, "n1", V5, 0, 15)]) == []


def test_an_old_primary_that_answers_what_was_asked_later_is_a_second_one() -> None:
    (finding,) = second_primaries([Served(0, "n2", V6, 0, 10), Served(0, "n1", V5, 11, 15)])
    assert "major=5" in finding
    assert finding.endswith("version 6.0 had answered before")


def test_two_servers_that_answer_on_one_version_are_two_primaries() -> None:
    (finding,) = second_primaries([Served(0, "n2", V6, 0, 10), Served(0, "n1", V6, 5, 15)])
    assert finding.endswith("two servers, one version")
