"""The driver's end of the socket: one thread for each connection, of which an engine opens one to watch the
state and one for each placement under way."""

from __future__ import annotations

import os
import select
import socket
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path

from spark import copies, frames, placement_job, plan_transfers, skew, what_if
from spark.board import Board, DriverState
from spark.frames import Frame, FrameKind
from spark.session import Job, PlacementJob, SparkCluster

HEARTBEAT_S = 1.0
PROGRESS_S = 0.5
QUESTION_LIMIT_S = 5.0
JOBS: dict[FrameKind, Job] = {
    FrameKind.PLACE: placement_job.run,
    FrameKind.WHAT_IF: what_if.run,
    FrameKind.PLAN: plan_transfers.run,
    FrameKind.SKEW: skew.run,
    FrameKind.VALIDATE: copies.run,
}
"""Job of each request on the cluster, with its table."""


class DriverServer:
    """Answers from ``start`` on; takes placements from ``serve_placements`` on."""

    def __init__(self, path: Path, board: Board) -> None:
        self._board = board
        self._cluster: SparkCluster | None = None
        self._stopped: Callable[[], None] = lambda: None
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Only the owner may connect, from the moment that the socket is there.
        mask = os.umask(0o177)
        self._listener.bind(str(path))
        os.umask(mask)
        self._listener.listen()

    def start(self) -> None:
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def serve_placements(self, cluster: SparkCluster, stopped: Callable[[], None]) -> None:
        """``stopped`` is called, from a thread of the server, when Spark has shut its context down."""
        self._stopped = stopped
        self._cluster = cluster

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), name="serve", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while (frame := frames.receive(connection)) is not None:
                    if frame.kind is FrameKind.WATCH:
                        self._watched(connection)
                    else:
                        frames.send(connection, self._placed(connection, frame))
            except OSError:
                return

    def _watched(self, connection: socket.socket) -> None:
        """State frames until the engine goes away: at every change and once a second. With a JVM that does not
        answer there are none, so that the engine sees silence."""
        report = self._board.report
        while True:
            if report.state is DriverState.READY:
                self._check_context()
            frames.send(
                connection, Frame(FrameKind.STATE, {"state": report.state.value, "message": report.message})
            )
            self._board.mark_read(report)
            report = self._board.wait_changed(report, HEARTBEAT_S)

    def _check_context(self) -> None:
        """Blocks while the JVM does not answer."""
        while self._cluster is not None:
            try:
                if self._cluster.is_stopped(QUESTION_LIMIT_S):
                    self._stopped()
            except TimeoutError:
                continue
            return

    def _placed(self, connection: socket.socket, frame: Frame) -> Frame:
        """Run one placement and answer it; in between, progress frames. Raises OSError when the engine is gone,
        after cancelling the job."""
        if self._cluster is None or frame.kind not in JOBS or frame.body is None:
            return Frame(FrameKind.REFUSED, {"message": f"{frame.kind.value}: {self._board.report.message}"})
        job = self._cluster.submit(frame.body, JOBS[frame.kind])
        try:
            self._follow(connection, self._cluster, job)
        except OSError:
            self._cluster.cancel(job)
            raise
        try:
            return Frame(FrameKind.RESULT, {}, job.result.result())
        except Exception as error:
            traceback.print_exc()
            self._check_context()
            return Frame(FrameKind.FAILED, {"message": str(error).strip().split("\n", 1)[0]})

    def _follow(self, connection: socket.socket, cluster: SparkCluster, job: PlacementJob) -> None:
        """Progress frames until the job is done. Raises OSError when the engine is gone."""
        while wait([job.result], PROGRESS_S).not_done:
            if select.select([connection], [], [], 0)[0]:
                # A request is one frame; whatever can be read now is the engine's end of the connection.
                raise ConnectionAbortedError("the engine went away")
            moving = cluster.is_moving(QUESTION_LIMIT_S)
            frames.send(connection, Frame(FrameKind.PROGRESS, {"moving": moving}))
