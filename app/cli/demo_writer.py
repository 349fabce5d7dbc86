"""The demo's load: a thread that puts one new key after another for as long as a change runs."""

from __future__ import annotations

import threading
import time
from typing import Self
from uuid import uuid4

from app.cli.address import Address
from app.cli.client import ApiClient
from app.cli.exits import CliError

# Between two puts, so that reading all keys back takes seconds, however long the change takes.
PAUSE_S = 0.005


class Writer:
    """Use it in a ``with``. ``acknowledged`` holds exactly the puts that the server confirmed."""

    def __init__(self, address: Address, zone: str) -> None:
        self.acknowledged: dict[str, str] = {}
        self.errors: list[str] = []
        self.stall_ms_max = 0.0
        self._address = address
        self._zone = zone
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="demo-writer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for the put that is under way."""
        self._ended.set()
        self._thread.join()

    @property
    def puts(self) -> int:
        return len(self.acknowledged) + len(self.errors)

    def _write(self) -> None:
        with ApiClient(self._address) as client:
            while not self._ended.is_set():
                key = f"live-{self.puts + 1:06}"
                started = time.monotonic()
                try:
                    client.put(self._zone, key, f"value of {key}", uuid4().hex)
                    self.acknowledged[key] = f"value of {key}"
                except CliError as error:
                    self.errors.append(f"{key}: {error}")
                self.stall_ms_max = max(self.stall_ms_max, (time.monotonic() - started) * 1000)
                self._ended.wait(PAUSE_S)
