"""The process that kills a node's guarded members at their deadline, whatever has become of the node's agent.

It is run as a file, by an interpreter without site packages, and imports next to nothing: it is there within
some hundredths of a second and small. It reads commands, a line each, from its standard input:

    until NS            the deadline, in nanoseconds of CLOCK_BOOTTIME
    guard PID STARTED   kill this process at the deadline; STARTED is its start time in /proc/PID/stat
    unguard PID

and writes ``done N`` for the number of lines it has obeyed so far, and ``killed PID ...``. When its input ends,
the agent is dead: it kills what it guards, and ends. No other signal than SIGKILL ends it: whoever stops a
whole service signals all of its processes, and the agent needs this one to the end.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

TICK_MS = 200
"""A poll's time stands still while the machine is suspended, so the clock is looked at this often."""


def start_time(pid: int) -> int:
    """Clock ticks from the machine's start to the process's; 0 where there is none. With the id it names a
    process for good: ids are used again."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            # The name of the program, in parentheses, may hold anything.
            return int(stat.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


class Watch:
    """``guarded``: process id -> descriptor of the process itself."""

    def __init__(self) -> None:
        self.deadline_ns = 0
        self.guarded: dict[int, int] = {}
        self.poll = select.poll()
        self.poll.register(sys.stdin.fileno(), select.POLLIN)
        self._obeyed = 0
        self._rest = b""

    def run(self) -> None:
        while True:
            ready = {number for number, _ in self.poll.poll(self._wait_ms())}
            if sys.stdin.fileno() in ready:
                received = os.read(sys.stdin.fileno(), 1 << 16)
                if not received:
                    self.kill()
                    return
                self._obey(received)
            for pid in [pid for pid, number in self.guarded.items() if number in ready]:
                self._forget(pid)
            if self.guarded and time.clock_gettime_ns(time.CLOCK_BOOTTIME) >= self.deadline_ns:
                self._say("killed " + " ".join(map(str, self.kill())))

    def kill(self) -> list[int]:
        killed = list(self.guarded)
        for pid in killed:
            try:
                signal.pidfd_send_signal(self.guarded[pid], signal.SIGKILL)
            except ProcessLookupError:
                continue  # it has ended by itself
        for pid in killed:
            self._forget(pid)
        return killed

    def _wait_ms(self) -> int | None:
        if not self.guarded:
            return None
        left_ms = (self.deadline_ns - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) // 1_000_000 + 1
        return max(0, min(TICK_MS, left_ms))

    def _obey(self, received: bytes) -> None:
        *lines, self._rest = (self._rest + received).split(b"\n")
        for line in lines:
            word, *numbers = line.split()
            if word == b"until":
                self.deadline_ns = int(numbers[0])
            elif word == b"guard":
                self._guard(int(numbers[0]), int(numbers[1]))
            elif word == b"unguard":
                self._forget(int(numbers[0]))
        self._obeyed += len(lines)
        self._say(f"done {self._obeyed}")

    def _guard(self, pid: int, started: int) -> None:
        self._forget(pid)
        try:
            number = os.pidfd_open(pid)
        except OSError:
            return
        if start_time(pid) != started:
            os.close(number)
            return
        self.guarded[pid] = number
        self.poll.register(number, select.POLLIN)

    def _forget(self, pid: int) -> None:
        number = self.guarded.pop(pid, None)
        if number is not None:
            self.poll.unregister(number)
            os.close(number)

    def _say(self, text: str) -> None:
        try:
            os.write(sys.stdout.fileno(), text.encode() + b"\n")
        except OSError:
            return  # a stopped agent does not read, and a dead one neither


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    os.set_blocking(sys.stdout.fileno(), False)
    Watch().run()


if __name__ == "__main__":
    main()
