"""Sample keys and the judgement of copies, over every set of keys (VOL-082, VOL-083)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.core.recovery.copy_samples import CopyVerdict, chosen, digest_of, judge

KEYS = st.lists(st.text(max_size=8), max_size=40)
STORES = st.dictionaries(st.text(max_size=4), st.binary(max_size=3), min_size=1, max_size=12)


@pytest.mark.row("VOL-082")
@given(KEYS, KEYS, st.integers(0, 5), st.integers(1, 10))
def test_pages_copies_and_order_do_not_matter(one: list[str], other: list[str], seed: int, count: int) -> None:
    """VOL-082: the same seed finds the same keys, page by page or at once, from one copy or from all."""
    found = chosen(one + other, seed, count)
    assert found == chosen((*chosen(one, seed, count), *chosen(reversed(other), seed, count)), seed, count)
    assert len(found) == min(count, len({*one, *other}))
    assert set(found) <= {*one, *other}
    assert found == tuple(sorted(found))


@given(STORES, st.integers(0, 9))
def test_copies_that_are_the_same_agree(store: dict[str, bytes], seed: int) -> None:
    verdicts = judge({name: dict(store) for name in "abc"}, chosen(store, seed, 5), are_known=False)
    assert all(each.agrees for each in verdicts.values())


@pytest.mark.row("VOL-083")
@given(STORES, st.data())
def test_the_copy_that_was_tampered_with_is_named(store: dict[str, bytes], data: st.DataObject) -> None:
    """VOL-083: what one of three lost or changed, or has and should not, and no other one is blamed."""
    keys = sorted(store)
    key = data.draw(st.sampled_from(keys))
    how = data.draw(st.sampled_from(("lost", "changed", "surplus")))
    copies: dict[str, dict[str, bytes | None]] = {name: dict(store) for name in "abc"}
    bad = data.draw(st.sampled_from("abc"))
    if how == "lost":
        copies[bad][key] = None
    elif how == "changed":
        copies[bad][key] = store[key] + b"!"
    else:
        for name in set("abc") - {bad}:
            copies[name][key] = None
    verdicts = judge(copies, keys, are_known=False)
    wanted = CopyVerdict((key,)) if how == "lost" else CopyVerdict(different=(key,))
    assert verdicts == {name: wanted if name == bad else CopyVerdict() for name in "abc"}


@pytest.mark.row("VOL-083")
def test_a_saved_key_must_be_there() -> None:
    """VOL-083: lost everywhere is lost on each copy; on one of two it is the other that lacks it."""
    gone = {"a": {"k": None}, "b": {"k": None}}
    assert judge(gone, ["k"], are_known=True) == dict.fromkeys("ab", CopyVerdict(("k",)))
    assert judge(gone, ["k"], are_known=False) == dict.fromkeys("ab", CopyVerdict())
    half = {"a": {"k": None}, "b": {"k": b"v"}}
    assert judge(half, ["k"], are_known=True) == {"a": CopyVerdict(("k",)), "b": CopyVerdict()}
    assert digest_of(None) is None
    assert digest_of(b"v") != digest_of(b"w")
