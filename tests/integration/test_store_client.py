"""The client of store servers, against servers that answer as the test says."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from catalog.core.zone import ZoneId
from rebalance.core.keyspace.keys import PartitionId
from rebalance.core.partition_maps.partition_map import StorePosition
from rebalance.data.store_attempts import FINAL, StoreRefusedError
from rebalance.data.zone_router import ZoneRouter
from rebalance.groups.calls.group_checks import CopyReader, Samples
from rebalance.ports.groups import GroupFullError, OutcomeUnknownError, ValueRefusedError
from rebalance.store.core.store_messages import (
    AnswerCode,
    CopyReadAnswer,
    CopyReadRequest,
    StoreAnswer,
    WriteRequest,
)
from tests.fixtures.scripted_store import Listed, Request, Script, scripted_store

P0 = PartitionId(ZoneId(7), 0)
SHORT_S = 0.5
DONE = StoreAnswer(0, AnswerCode.DONE, value=b"value", position=StorePosition(1, 5))


def always(answer: StoreAnswer) -> Script:
    return lambda request: replace(answer, request=request.request)


def in_turn(*answers: StoreAnswer | None) -> Script:
    """The last one for good; None: the connection is lost after the request came."""
    left = list(answers)

    def script(request: Request) -> StoreAnswer | None:
        answer = left.pop(0) if len(left) > 1 else left[0]
        return None if answer is None else replace(answer, request=request.request)

    return script


def refusing(code: AnswerCode) -> StoreAnswer:
    return StoreAnswer(0, code, detail="as the test says")


async def test_a_write_is_repeated_under_its_id_when_its_answer_was_lost() -> None:
    async with scripted_store(in_turn(None, refusing(AnswerCode.UNKNOWN), DONE)) as store:
        client = ZoneRouter(Listed((store.url,)))
        assert (await client.put(P0, "key", b"value", "w1")).revision == 5
        writes = [request.write for request in store.requests if isinstance(request, WriteRequest)]
        assert writes == ["w1"] * 3
        await client.close()


@pytest.mark.parametrize(
    "code", [AnswerCode.NOT_PRIMARY, AnswerCode.NOT_SERVING, AnswerCode.WAITING_FOR_OWNERS, AnswerCode.NO_ZONE]
)
async def test_what_was_refused_goes_to_the_next_server(code: AnswerCode) -> None:
    """And the map is doubted, so that it is read again."""
    async with scripted_store(always(refusing(code))) as old, scripted_store(always(DONE)) as primary:
        source = Listed((old.url, primary.url))
        client = ZoneRouter(source)
        assert (await client.get(P0, "key")).value == b"value"
        assert (len(old.requests), len(primary.requests), source.doubts) == (1, 1, 1)
        await client.close()


async def test_the_server_that_another_one_names_is_asked_next() -> None:
    elsewhere = StoreAnswer(0, AnswerCode.NOT_PRIMARY, primary="n3")
    async with (
        scripted_store(always(elsewhere), "n1") as first,
        scripted_store(always(elsewhere), "n2") as second,
        scripted_store(always(DONE), "n3") as third,
    ):
        client = ZoneRouter(Listed((first.url, second.url, third.url)))
        assert (await client.get(P0, "key")).value == b"value"
        assert [len(store.requests) for store in (first, second, third)] == [1, 0, 1]
        await client.close()


async def test_a_changed_map_is_followed() -> None:
    async with scripted_store(always(refusing(AnswerCode.NOT_PRIMARY))) as old:
        source = Listed((old.url,))
        client = ZoneRouter(source)
        reading = asyncio.create_task(client.get(P0, "key"))
        while not old.requests:
            await asyncio.sleep(0.01)
        async with scripted_store(always(DONE)) as primary:
            source.change(primary.url)
            assert (await reading).value == b"value"
        await client.close()


@pytest.mark.parametrize("code", [AnswerCode.LOST, AnswerCode.RESTING])
async def test_what_stays_refused_is_said_at_once(code: AnswerCode) -> None:
    async with scripted_store(always(refusing(code))) as store:
        client = ZoneRouter(Listed((store.url,)))
        with pytest.raises(StoreRefusedError) as refused:
            await client.put(P0, "key", b"value", "w1")
        assert (refused.value.code, code in FINAL, len(store.requests)) == (code, True, 1)
        await client.close()


async def test_lack_of_room_and_values_that_are_too_large_have_errors_of_their_own() -> None:
    answers = refusing(AnswerCode.NO_ROOM), refusing(AnswerCode.TOO_LARGE)
    async with scripted_store(in_turn(*answers)) as store:
        client = ZoneRouter(Listed((store.url,)))
        with pytest.raises(GroupFullError):
            await client.put(P0, "key", b"value", "w1")
        with pytest.raises(ValueRefusedError):
            await client.put(P0, "key", b"value", "w2")
        await client.close()


async def test_the_outcome_is_unknown_only_where_something_was_sent_that_nobody_answered() -> None:
    """Report an outcome as unknown only after a request was sent and not answered: where each attempt was
    refused, or no server was reached, nothing was written."""
    waiting = refusing(AnswerCode.WAITING_FOR_OWNERS)
    async with scripted_store(always(waiting)) as store:
        client = ZoneRouter(Listed((store.url,)))
        with pytest.raises(StoreRefusedError) as refused:
            await client.put(P0, "key", b"value", "w1", limit_s=SHORT_S)
        assert refused.value.code is AnswerCode.WAITING_FOR_OWNERS
        assert refused.value.code not in FINAL
        url = store.url
        await client.close()
    nobody = ZoneRouter(Listed((url,)))
    with pytest.raises(StoreRefusedError) as unreached:
        await nobody.put(P0, "key", b"value", "w1", limit_s=SHORT_S)
    assert unreached.value.code is AnswerCode.NOT_SERVING
    await nobody.close()
    async with scripted_store(in_turn(None, waiting)) as store:
        client = ZoneRouter(Listed((store.url,)))
        with pytest.raises(OutcomeUnknownError):
            await client.put(P0, "key", b"value", "w1", limit_s=SHORT_S)
        with pytest.raises(StoreRefusedError):
            await client.get(P0, "key", limit_s=SHORT_S)
        await client.close()


async def test_a_loss_after_an_unanswered_attempt_does_not_say_that_nothing_was_written() -> None:
    async with scripted_store(in_turn(None, refusing(AnswerCode.LOST))) as store:
        client = ZoneRouter(Listed((store.url,)))
        with pytest.raises(OutcomeUnknownError):
            await client.put(P0, "key", b"value", "w1", limit_s=SHORT_S)
        await client.close()


async def test_another_incarnation_at_the_address_is_asked_nothing() -> None:
    """The port may belong to another installation by now."""
    async with scripted_store(always(DONE), incarnation="second") as store:
        client = ZoneRouter(Listed((store.url.replace("second", "first"),)))
        with pytest.raises(StoreRefusedError, match="incarnation second of n1 answers"):
            await client.put(P0, "key", b"value", "w1", limit_s=SHORT_S)
        assert not store.requests
        await client.close()


def holding(rows: dict[bytes, bytes]) -> Script:
    """A copy that is asked for itself."""

    def script(request: Request) -> CopyReadAnswer:
        assert isinstance(request, CopyReadRequest)
        if request.keys_bytes:
            later = sorted(key for key in rows if key > request.key)
            return CopyReadAnswer(request.request, keys=tuple(later[:2]))
        return CopyReadAnswer(request.request, rows.get(request.key))

    return script


async def test_copies_are_compared_with_each_other() -> None:
    """Compare copies with each other: keys that one lacks and keys whose values differ are named; a copy that
    does not answer is not read."""
    rows = {b"key-%d" % number: b"value" for number in range(7)}
    different = {**rows, b"key-3": b"another"}
    del different[b"key-5"]
    with_a, with_b, with_c = (holding(copy) for copy in (rows, rows, different))
    async with scripted_store(with_a) as a, scripted_store(with_b) as b, scripted_store(with_c) as c:
        client, reader = ZoneRouter(Listed(())), CopyReader()
        copies = {"a": a.url, "b": b.url, "c": c.url, "away": ""}
        check = await reader.check(P0, copies, Samples(0, 100), client.copy_reads(P0))
        assert set(check.digests) == {key.decode() for key in rows}
        assert check.verdicts["a"].agrees
        assert (check.verdicts["c"].lacking, check.verdicts["c"].different) == (("key-5",), ("key-3",))
        assert check.unread == {"away": "it has no address"}
        await client.close()
        await reader.close()


async def test_requests_share_one_connection_and_are_answered_in_any_order() -> None:
    async with scripted_store(always(DONE)) as store:
        client = ZoneRouter(Listed((store.url,)))
        answers = await asyncio.gather(*(client.get(P0, f"key-{number}") for number in range(100)))
        assert {answer.value for answer in answers} == {b"value"}
        assert len(store.connections) == 1
        assert len({request.request for request in store.requests}) == 100
        await client.close()


async def test_a_put_waits_until_its_partition_has_somebody_who_leads_it() -> None:
    """Hold a put until its partition has a leader: before that it is open whether members of a group or store
    servers will keep it."""
    source = Listed(())
    router = ZoneRouter(source)
    putting = asyncio.create_task(router.put(P0, "key", b"value", "w1"))
    await asyncio.sleep(0)
    async with scripted_store(always(replace(DONE, repeated=True))) as store:
        source.change(store.url)
        assert await putting
        datum = await router.get(P0, "key")
        assert (datum.value, datum.revision) == (b"value", 5)
        await router.close()
    unopened = ZoneRouter(Listed(()), time_limit_s=SHORT_S)
    with pytest.raises(StoreRefusedError, match="no server could be reached in time: no server leads it"):
        await unopened.put(P0, "key", b"value", "w1")
    await unopened.close()
