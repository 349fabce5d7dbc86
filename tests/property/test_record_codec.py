"""Every record kind: its bytes stay what they were, unknown fields are kept, and nothing else than
RecordNotReadableError comes out of bytes that are none."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from catalog.core.codec import RecordNotReadableError
from tests.fixtures.record_samples import KINDS, REVISIONS
from tests.fixtures.strange_records import STRANGE

GOLDEN = Path(__file__).parents[1] / "data" / "records_golden.tsv"
MAPS = ("labels", "attributes", "engines", "zone_pauses", "members", "buckets.nodes", "peers", "joiners")
"""Objects whose names are data: a field more is one more entry, and no unknown field."""
VALUES_MAX = 2_500
SOAK_VALUES_MAX = 100_000


def golden() -> list[tuple[str, bytes]]:
    pairs = (line.split("\t", 1) for line in GOLDEN.read_text().splitlines())
    return [(name, text.encode()) for name, text in pairs]


READERS: dict[str, Callable[[bytes], Any]] = {
    **{kind.name: kind.decode for kind in KINDS},
    **{name: decode for name, decode, _ in REVISIONS},
}


def test_what_is_written_is_what_earlier_builds_wrote() -> None:
    written = [(kind.name, sample.encode()) for kind in KINDS for sample in kind.samples]
    written += [(name, value) for name, _, value in REVISIONS]
    assert sorted(written) == sorted(golden())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_is_written_is_read(kind: Any) -> None:
    for sample in kind.samples:
        assert kind.decode(sample.encode()) == sample


def _objects(node: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """The objects of a document that are records, or parts of records."""
    if isinstance(node, dict):
        name = path.rpartition(".")[2]
        is_map = name in MAPS or any(path.endswith(each) for each in MAPS if "." in each)
        if not is_map:
            yield node
        for key, value in node.items():
            yield from _objects(value, f"{path}.{key}")
    elif isinstance(node, list):
        for value in node:
            yield from _objects(value, f"{path}[]")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_fields_of_a_later_build_are_kept_wherever_they_are(kind: Any) -> None:
    for sample in kind.samples:
        document = json.loads(sample.encode())
        for part in list(_objects(document)):
            part["later"] = {"is": ["kept", 1, None]}
        value = json.dumps(document, ensure_ascii=False).encode()
        read = kind.decode(value)
        assert read == sample, "they say nothing to this build"
        assert json.loads(read.encode()) == document


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("later", [rb'"\ud800"', rb'{"\udfff":["\ud800"]}', b"1e308", b"-0.0", b"9" * 300])
def test_whatever_a_later_build_adds_can_be_written_again(kind: Any, later: bytes) -> None:
    for sample in kind.samples:
        value = sample.encode()[:-1] + b',"later":' + later + b"}"
        written = kind.decode(value).encode()
        assert json.loads(written) == json.loads(value)
        assert kind.decode(written) == sample


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("later", [b"1e999", b"-1e999", b"Infinity", b"NaN"])
def test_what_could_not_be_written_again_is_not_readable(kind: Any, later: bytes) -> None:
    with pytest.raises(RecordNotReadableError):
        kind.decode(kind.samples[0].encode()[:-1] + b',"later":' + later + b"}")


def test_an_event_of_the_topology_keeps_what_is_behind_it() -> None:
    (kind,) = (each for each in KINDS if each.name == "topology")
    document = json.loads(kind.samples[0].encode())
    document["events"][0].append("later")
    assert json.loads(kind.decode(json.dumps(document).encode()).encode()) == document


@pytest.mark.parametrize("name", sorted(READERS))
@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"x", b"null", b"[]", b"1", b'"a"', b"{}", b'{"v":2}', b'{"v":true}', b'{"v":1}', b'{"v":1.0}'),
        *(b"\xff\xfe\x00", b'{"v":1', b"[" * 100_000, b'{"v":' + b"9" * 5_000 + b"}", b"\x00" * 100),
    ],
    ids=lambda value: repr(value[:12]),
)
def test_what_is_no_record_is_not_readable(name: str, value: bytes) -> None:
    with pytest.raises(RecordNotReadableError) as error:
        READERS[name](value)
    assert len(error.value.reason) < 1_000


def _mutated(chance: random.Random, document: Any) -> bytes:
    """A value near to a record: some of its places hold something else, or nothing."""
    changed = {"root": copy.deepcopy(document)}
    for _ in range(chance.randint(1, 3)):
        holder: Any = changed
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = chance.choice(keys)
            if isinstance(holder[key], (dict, list)) and holder[key] and chance.random() < 0.8:
                holder = holder[key]
                continue
            if chance.random() < 0.2:
                del holder[key]
            else:
                holder[key] = copy.deepcopy(chance.choice(STRANGE))
            break
    value = json.dumps(changed.get("root")).encode()
    if chance.random() < 0.2:
        raw = bytearray(value or b" ")
        raw[chance.randrange(len(raw))] = chance.randrange(256)
        value = bytes(raw)
    return value


def _fuzz(chance: random.Random, values: int) -> tuple[int, int]:
    """Numbers of values that were read, and that were not. Any other exception ends the test."""
    documents = [(name, json.loads(value)) for name, value in golden()]
    read = refused = 0
    for _ in range(values):
        name, document = chance.choice(documents)
        value = _mutated(chance, document)
        try:
            found = READERS[name](value)
        except RecordNotReadableError:
            refused += 1
            continue
        read += 1
        if name not in ("trigger", "lock"):
            assert READERS[name](found.encode()) == found, value
    return read, refused


@pytest.mark.parametrize("seed", [1, 2])
def test_random_values_are_read_or_refused(seed: int) -> None:
    read, refused = _fuzz(random.Random(seed), VALUES_MAX)
    assert read > VALUES_MAX // 50
    assert refused > VALUES_MAX // 4


@pytest.mark.soak
def test_many_random_values_take_no_memory() -> None:
    chance, process = random.Random(3), psutil.Process()
    _fuzz(chance, 10_000)
    before = process.memory_info().rss
    read, refused = _fuzz(chance, SOAK_VALUES_MAX)
    after = process.memory_info().rss
    print(f"{read} read, {refused} refused, {before >> 20} MiB before, {after >> 20} MiB after")
    assert after <= 1.1 * before
