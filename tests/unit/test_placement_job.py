"""The steps of the Spark job and the driver's surroundings, without Spark."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from catalog.core.zone import ZoneId
from rebalance.ports.placement import PlacementError, PlacementRequest
from spark import batch as batches
from spark import frames, placement_job
from spark.errors import JavaMissingError, JobFailedError
from spark.frames import Frame, FrameKind
from spark.java import find_java
from spark.session import build_code_zip


def request(zone: int, nodes: int, partitions: int, replicas: int = 3) -> PlacementRequest:
    return PlacementRequest(ZoneId(zone), tuple(f"n{i}" for i in range(nodes)), partitions, replicas, 3)


def cells_of(requests: list[PlacementRequest], parallelism: int = 2) -> pa.Table:
    ranges = placement_job.split(batches.encode(requests), parallelism)
    return pa.Table.from_batches(
        list(placement_job.place_batches(iter(ranges.to_batches()))), placement_job.CELLS_SCHEMA
    )


def test_ranges_cover_each_zone_once_and_respect_the_limits() -> None:
    requests = [request(1, 100, 1_000_000), request(2, 3, 8), request(3, 0, 5), request(4, 50, 0)]
    table = placement_job.split(batches.encode(requests), parallelism=4)
    rows = table.to_pylist()
    for zone, partitions in ((0, 1_000_000), (1, 8)):
        pieces = [(row["first"], row["count"]) for row in rows if row["zone"] == zone]
        assert [first for first, _ in pieces] == list(np.cumsum([0, *(count for _, count in pieces)])[:-1])
        assert sum(count for _, count in pieces) == partitions
    assert {row["zone"] for row in rows} == {0, 1}
    assert all(row["count"] * 3 <= placement_job.CELLS_PER_RANGE_MAX for row in rows)
    work = [sum(row["count"] * len(row["hashes"]) for row in b.to_pylist()) for b in table.to_batches()]
    assert 4 <= len(work) <= 16
    assert max(work) < 2 * sum(work) / len(work)


def test_a_small_batch_is_one_task_and_many_zones_are_few() -> None:
    assert len(placement_job.split(batches.encode([request(1, 3, 8)]), 64).to_batches()) == 1
    many = placement_job.split(batches.encode([request(i, 10, 25) for i in range(1000)]), 64)
    assert len(many.to_batches()) == -(-1000 // placement_job.ROWS_PER_BATCH_MAX)


def test_empty_zones_need_no_job() -> None:
    requests = [request(1, 0, 5), request(2, 3, 0)]
    results = batches.decode(requests, cells_of(requests))
    assert [result.matrix.shape for result in results] == [(5, 0), (0, 3)]
    assert [result.consensus for result in results] == [0, 3]


def test_a_bad_zone_is_a_row_with_its_error_and_named() -> None:
    requests = [request(41, 3, 8), request(42, 3, 8, replicas=0)]
    cells = cells_of(requests)
    assert cells.column("error").to_pylist() == [None, "replicas must be at least 1, not 0"]
    with pytest.raises(
        PlacementError, match=r"zone 42 cannot be placed: replicas must be at least 1"
    ) as caught:
        batches.decode(requests, cells)
    assert caught.value.zone_id == 42


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (PlacementRequest(ZoneId(7), ("a", "a"), 8, 3, 3), "named twice: 'a'"),
        (
            PlacementRequest(ZoneId(7), ("a", "b"), 8, 3, 3, "other"),
            "no kernel for the algorithm 'other'",
        ),
        (PlacementRequest(ZoneId(7), ("a", "b"), -1, 3, 3), "-1 partitions"),
        (PlacementRequest(ZoneId(7), ("a", "b"), 8, 2**31, 3), "2147483648 replicas"),
    ],
)
def test_what_no_engine_can_place_is_refused_before_spark(bad: PlacementRequest, message: str) -> None:
    with pytest.raises(PlacementError, match=f"zone 7 cannot be placed: .*{message}"):
        batches.encode([request(1, 3, 8), bad])
    with pytest.raises(PlacementError, match=f"zone 7 cannot be placed: .*{message}"):
        batches.place_locally([request(1, 3, 8), bad])


def test_missing_and_misfit_ranges_are_no_result() -> None:
    requests = [request(1, 3, 8)]
    cells = cells_of(requests)
    with pytest.raises(JobFailedError, match="0 of 8 partitions"):
        batches.decode(requests, cells.slice(0, 0))
    with pytest.raises(JobFailedError, match="24 cells for 18"):
        batches.decode([request(1, 3, 6)], cells)


def test_the_shipped_zip_is_enough_for_an_executor(tmp_path: Path) -> None:
    """The job's module comes from the zip, with nothing of ours from elsewhere."""
    archive = build_code_zip(tmp_path / "code.zip")
    script = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import spark.placement_job as job;"
        "ours = [m for n, m in sys.modules.items() if n.split('.')[0] in ('spark', 'rebalance', 'catalog')];"
        f"assert all(str(m.__file__).startswith({str(archive)!r}) for m in ours), ours;"
        "assert 'pyspark' not in sys.modules; print(len(ours))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 4


def test_frames_survive_the_socket_and_name_their_end() -> None:
    left, right = socket.socketpair()
    table = pa.table({"x": list(range(200_000))})
    with left, right:
        sender = threading.Thread(target=frames.send, args=(left, Frame(FrameKind.RESULT, {"a": "ä"}, table)))
        sender.start()
        received = frames.receive(right)
        sender.join()
        assert received is not None
        assert (received.kind, received.fields) == (FrameKind.RESULT, {"a": "ä"})
        assert received.body is not None
        assert received.body.equals(table)
        left.sendall(b"\0\0")
        left.shutdown(socket.SHUT_WR)
        with pytest.raises(frames.FrameError, match="inside a frame"):
            frames.receive(right)
        assert frames.receive(right) is None


def test_a_frame_over_the_limits_is_refused() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"\xff" * 12)
        with pytest.raises(frames.FrameError, match="over the limits"):
            frames.receive(right)


def _fake_java(directory: Path, output: str) -> Path:
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{output}' >&2\n")
    path.chmod(0o755)
    return directory


def test_java_is_found_as_sparks_scripts_find_it(tmp_path: Path) -> None:
    home = _fake_java(tmp_path / "home", 'openjdk version "21.0.4" 2024-07-16')
    on_path = _fake_java(tmp_path / "other", 'openjdk version "17-ea" 2021-09-14')
    assert find_java({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}).version == "21.0.4"
    assert find_java({"PATH": str(on_path / "bin")}).version == "17-ea"


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ('java version "1.8.0_412"', r"is Java 8: install Java 17 or later"),
        ('openjdk version "11.0.2"', r"is Java 11: install Java 17 or later"),
        ("Killed", r"gave no version .*install Java 17"),
    ],
)
def test_java_that_will_not_do_says_what_to_install(tmp_path: Path, output: str, message: str) -> None:
    with pytest.raises(JavaMissingError, match=message):
        find_java({"JAVA_HOME": str(_fake_java(tmp_path, output))})


def test_no_java_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(JavaMissingError, match=r"none on PATH: install Java 17 or later"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaMissingError, match=r"no bin/java: install Java 17 or later"):
        find_java({"JAVA_HOME": str(tmp_path)})
