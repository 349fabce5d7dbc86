"""A driver without Spark, for tests of what keeps drivers alive: ready at once, then misbehaving as the master
URL says. Speaks the protocol of ``spark/tech-notes/driver-protocol.md``."""

from __future__ import annotations

import argparse
import os
import socket
import threading
import time

from spark import frames
from spark.frames import Frame, FrameKind


def watched(connection: socket.socket, behaviour: str) -> None:
    if behaviour == "broken":
        frames.send(connection, Frame(FrameKind.STATE, {"state": "failed", "message": "install Java 99"}))
        time.sleep(0.1)
        os._exit(3)
    if behaviour == "babbles":
        frames.send(connection, Frame(FrameKind.STATE, {"state": "of a later build", "message": ""}))
    while True:
        if behaviour == "talkative":
            print("talk " * 200, flush=True)
        frames.send(connection, Frame(FrameKind.STATE, {"state": "ready", "message": behaviour}))
        time.sleep(0.1 if behaviour != "silent" else 600)


def placed(connection: socket.socket, behaviour: str) -> None:
    while behaviour == "stalled":
        frames.send(connection, Frame(FrameKind.PROGRESS, {"moving": False}))
        time.sleep(0.05)
    if behaviour == "silent":
        time.sleep(600)
    if behaviour == "dies":
        os._exit(4)
    frames.send(connection, Frame(FrameKind.FAILED, {"message": "out of memory"}))


def serve(connection: socket.socket, behaviour: str) -> None:
    with connection:
        frame = frames.receive(connection)
        try:
            if frame is not None and frame.kind is FrameKind.WATCH:
                watched(connection, behaviour)
            elif frame is not None:
                placed(connection, behaviour)
        except OSError:
            return


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("--socket", "--master", "--scratch", "--memory"):
        parser.add_argument(option)
    options = parser.parse_args()
    if os.path.exists(options.socket):
        os.unlink(options.socket)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(options.socket)
        listener.listen()
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection, options.master), daemon=True).start()


if __name__ == "__main__":
    main()
