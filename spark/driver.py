"""The Spark driver: a process of its own that owns the session and answers an engine over a Unix socket.

``python -m spark.driver --socket PATH --master local[*] --scratch DIR``

The main thread starts the JVM, opens the session, runs one small job and then waits for the JVM's end; a server
thread answers from the first moment (``tech-notes/driver-protocol.md``). The process lives as long as its
parent, which spawned it so that it dies with it, and as its JVM, without which it is of no use. Output goes to
stderr, which the parent turns into a log file.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from rebalance.hosting.heartbeat import dump_on_signal
from spark.board import Board, DriverState, JobExitCode
from spark.class_archive import archive_options, drop_archive
from spark.cluster_network import SparkNetwork
from spark.errors import SessionError
from spark.java import find_java
from spark.serving import DriverServer
from spark.session import SessionConfig, SparkCluster, launch_jvm, open_session

REPORT_LIMIT_S = 10.0
"""Time, in seconds, that a driver that could not start waits for its engine to read why."""


def main(arguments: Sequence[str]) -> int:
    dump_on_signal()
    options = _parse(arguments)
    board = Board()
    server = DriverServer(options.socket, board)
    server.start()
    ports = None if options.ports is None else range(options.ports[0], options.ports[1] + 1)
    network = SparkNetwork(options.properties, options.host, ports)
    try:
        java = find_java()
        config = SessionConfig(options.master, options.scratch, options.memory, network, archive_options(java))
        try:
            jvm = launch_jvm(config)
        except SessionError:
            drop_archive(java)
            raise
        board.post(DriverState.STARTING, f"Spark connects to {config.master}")
        cluster = SparkCluster(open_session(config))
        board.post(
            DriverState.STARTING, f"Spark waits for its first job; are there executors at {config.master}?"
        )
        cluster.warm_up()
    except Exception as error:
        traceback.print_exc()
        board.post(DriverState.FAILED, _cause(error))
        board.wait_read(REPORT_LIMIT_S)
        return JobExitCode.NOT_STARTED
    server.serve_placements(cluster, lambda: os._exit(JobExitCode.CONTEXT_STOPPED))
    board.post(DriverState.READY, f"{cluster.describe()} on Java {java.version}")
    code = jvm.wait()
    print(f"Spark's JVM ended with code {code}", file=sys.stderr, flush=True)
    return JobExitCode.JVM_LOST


def _cause(error: Exception) -> str:
    """One line for people: ours as it is, Spark's without its Java stack trace."""
    if isinstance(error, SessionError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("Caused by:", ":"))]
    line = (causes[-1] if causes else (lines or [type(error).__name__])[0]).lstrip(": ")
    return f"Spark could not start: {line}"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="spark.driver", description="Zonekeeper's Spark driver process")
    parser.add_argument("--socket", type=Path, required=True, help="Unix socket to listen on")
    parser.add_argument("--master", default="local[*]", help="Spark master URL")
    parser.add_argument("--scratch", type=Path, required=True, help="directory for Spark's temporary files")
    parser.add_argument("--memory", default="1g", help="heap of the JVM, as Spark writes it")
    parser.add_argument("--properties", type=Path, help="file of Spark's properties, with the cluster's secret")
    parser.add_argument("--host", default="", help="address at which executors reach this driver")
    parser.add_argument("--ports", type=int, nargs=2, help="first and last of its ports")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Not sys.exit: threads that wait for a JVM that is gone would keep the process.
    os._exit(main(sys.argv[1:]))
