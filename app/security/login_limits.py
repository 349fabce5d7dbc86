"""How many logins may fail: by address, and by user and address. No user is ever locked: whoever comes from
another address is not held up by them.

Pure: the time is given. Bounded: of addresses that failed, the ones that are remembered longest are forgotten
first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

from rebalance.hosting.client_network import network_of

WINDOW_S = 60.0
BY_ADDRESS_MAX = 10
BY_USER_MAX = 5
"""Below the other, so that a script with an old password leaves room for others behind the same address."""
KEYS_MAX = 20_000
NAME_CHARS_MAX = 128
"""No user has a longer name, and what strangers send is remembered."""

LOOPBACK = "loopback"

_Key = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Wait:
    """``seconds``: until another login may be tried."""

    seconds: float


class LoginLimits:
    """Counts failures. A login that is refused because of them is none."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._failures: OrderedDict[_Key, deque[float]] = OrderedDict()

    def wait(self, address: str, user: str, now: float) -> Wait | None:
        """None: it may be tried. ``now``: seconds, of a clock that never goes back."""
        network = _place(address)
        pairs = (((network, None), BY_ADDRESS_MAX), ((network, user[:NAME_CHARS_MAX]), BY_USER_MAX))
        waits = [seconds for key, most in pairs if (seconds := self._seconds(key, most, now)) > 0]
        return Wait(max(waits)) if waits else None

    def failed(self, address: str, user: str, now: float) -> None:
        network = _place(address)
        for key in ((network, None), (network, user[:NAME_CHARS_MAX])):
            self._recent(key, now).append(now)
            self._failures.move_to_end(key)
        while len(self._failures) > KEYS_MAX:
            self._failures.popitem(last=False)

    def _seconds(self, key: _Key, most: int, now: float) -> float:
        if key not in self._failures:
            return 0.0
        times = self._recent(key, now)
        if not times:
            del self._failures[key]
        return times[-most] + self._window_s - now if len(times) >= most else 0.0

    def _recent(self, key: _Key, now: float) -> deque[float]:
        times = self._failures.setdefault(key, deque(maxlen=BY_ADDRESS_MAX))
        while times and times[0] + self._window_s <= now:
            times.popleft()
        return times


def _place(address: str) -> str:
    """Every user of this machine has all of its loopback addresses."""
    network = network_of(address)
    return LOOPBACK if network.startswith("127.") or network == network_of("::1") else network
