"""Hosts whose links are cut and slowed for real: a network of the kernel's for each, around one router.

A network lives as long as a process in it, and each is held by a child that dies with this process: a test
that is killed leaves no network, no interface and no rule behind. Whoever starts more processes in one starts
them by ``hosting.child.spawn``, so that these die, too.

All traffic between two sites passes the router. A cut is a rule of the router's that drops packets by their
source and destination, so it has a direction and nobody is told: connections hang, as they do when a switch
fails. A slow link is a token bucket: on a site's own cable, or on a detour of the router's for one pair and
direction.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rebalance.hosting.child import spawn

HERE = "here"
"""The site of the test's own process, in the machine's network."""
ROUTER = "router"
TOOLS = ("ip", "tc", "nsenter", "unshare", "setpriv")
START_S = 30.0
CUT, DETOUR = 100, 200
"""Priorities of the router's rules: what is cut takes no detour."""
BURST_S, QUEUE_MS = 0.02, 50
"""What of a link's rate passes at once, and how long a packet waits at most."""
PACKET_BYTES = 64 << 10
CLONE_NEWNET = 0x40000000

_numbers = itertools.count()


@functools.cache
def missing() -> str:
    """Why this machine has no such networks; empty when it has."""
    if os.geteuid() != 0:
        return "networks of a test's own need root"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"networks of a test's own need {', '.join(absent)}: install iproute2 and util-linux"
    try:
        with cut_networks("probe") as networks:
            networks.slow("probe", rate=1 << 20)
            networks.cut(HERE, "probe")
    except (OSError, subprocess.CalledProcessError) as error:
        detail = getattr(error, "stderr", "") or str(error)
        return f"networks of a test's own are refused here: {detail.strip()}"
    return ""


class CutNetworks:
    """``sites`` beside ``HERE``, up to 62. Rates are bytes a second."""

    def __init__(self, *sites: str) -> None:
        self._number = next(_numbers)
        self._sites = (HERE, *sites)
        self._subnet = ""
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._rules: list[str] = []
        self._detours = itertools.count(1)
        self._detour_links: list[str] = []
        self._shaped: set[str] = set()

    def open(self) -> None:
        self._subnet = _free_subnet()
        for site in (ROUTER, *self._sites[1:]):
            self._holders[site] = _held_network()
        off = "for each in all default; do echo 0 > /proc/sys/net/ipv4/conf/$each/rp_filter; done"
        _run([*self._inside(ROUTER), "sh", "-c", f"{off}; echo 1 > /proc/sys/net/ipv4/ip_forward"])
        router = self._holders[ROUTER].pid
        for index, site in enumerate(self._sites):
            own, gateway = f"{self._subnet}.{4 * index + 2}", f"{self._subnet}.{4 * index + 1}"
            place = f"netns {self._holders[site].pid}" if site in self._holders else ""
            self._ip(HERE, f"link add {self._cable(site)} {place} type veth peer name r{index} netns {router}")
            self._ip(ROUTER, f"addr add {gateway}/30 dev r{index}", f"link set r{index} up")
            self._ip(
                site,
                *(["link set lo up"] if site in self._holders else []),
                f"addr add {own}/30 dev {self._cable(site)}",
                f"link set {self._cable(site)} up",
                f"route add {self._subnet}.0/24 via {gateway}",
            )

    def close(self) -> None:
        for holder in self._holders.values():
            holder.kill()
            holder.wait()
        self._holders.clear()
        # The kernel takes its time for the rest; the machine's own end must not be in the next one's way.
        subprocess.run(["ip", "link", "del", self._cable(HERE)], capture_output=True, check=False)

    def address(self, site: str) -> str:
        return f"{self._subnet}.{4 * self._sites.index(site) + 2}"

    def command(self, site: str, argv: Sequence[str]) -> list[str]:
        """The command line that runs ``argv`` at ``site``."""
        return [*self._inside(site), *argv]

    def socket(self, site: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
        """An unbound IPv4 socket of the site's network, for use by this process."""
        if site not in self._holders:
            return socket.socket(socket.AF_INET, kind)
        opened: list[socket.socket | OSError] = []

        def open_there() -> None:
            """In a thread of its own: its network is the site's from here on."""
            libc = ctypes.CDLL(None, use_errno=True)
            with open(f"/proc/{self._holders[site].pid}/ns/net") as network:
                if libc.setns(network.fileno(), CLONE_NEWNET):
                    opened.append(OSError(ctypes.get_errno(), f"no way into the network of {site}"))
                else:
                    opened.append(socket.socket(socket.AF_INET, kind))

        thread = threading.Thread(target=open_there)
        thread.start()
        thread.join()
        (result,) = opened
        if isinstance(result, OSError):
            raise result
        return result

    def cut(self, source: str, destination: str, *, one_way: bool = False) -> None:
        """No packet passes from ``source`` to ``destination``, nor back unless ``one_way``. Nobody is told."""
        for pair in _directions(source, destination, one_way=one_way):
            self._rule(f"pref {CUT} {self._selector(*pair)} blackhole")

    def slow(self, source: str, destination: str = "", *, rate: int, one_way: bool = False) -> None:
        """From ``source`` to ``destination`` at ``rate``, and back unless ``one_way``, each direction by
        itself. Without a destination: all that ``source`` sends and gets, on one cable."""
        if not destination:
            index = self._sites.index(source)
            self._shape(source, self._cable(source), rate)
            if not one_way:
                self._shape(ROUTER, f"r{index}", rate)
            return
        for pair in _directions(source, destination, one_way=one_way):
            self._detour(*pair, rate)

    def heal(self) -> None:
        """Every link is whole and fast again."""
        for rule in self._rules:
            self._ip(ROUTER, f"rule del {rule}")
        for link in self._detour_links:
            self._ip(ROUTER, f"link del {link}")
        for shaped in self._shaped:
            site, link = shaped.split()
            _run([*self._inside(site), "tc", "qdisc", "del", "dev", link, "root"])
        self._rules, self._detour_links, self._shaped = [], [], set()

    def _detour(self, source: str, destination: str, rate: int) -> None:
        """Out at one end of a cable of the router's, slowly, and in at the other, from where it goes on."""
        number = next(self._detours)
        out, back, table = f"out{number}", f"in{number}", 1000 + number
        self._ip(ROUTER, f"link add {out} type veth peer name {back}", f"link set {back} up")
        self._ip(ROUTER, f"link set {out} up", f"addr add 169.254.{number}.1/30 dev {out}")
        shown = _run([*self._inside(ROUTER), "ip", "-o", "link", "show", back]).split()
        hop, hardware = f"169.254.{number}.2", shown[shown.index("link/ether") + 1]
        self._ip(
            ROUTER,
            f"neigh add {hop} lladdr {hardware} dev {out} nud permanent",
            f"route add default via {hop} dev {out} table {table}",
        )
        self._shape(ROUTER, out, rate, lasting=False)
        self._detour_links.append(out)
        entry = f"r{self._sites.index(source)}"
        self._rule(f"pref {DETOUR} {self._selector(source, destination)} iif {entry} lookup {table}")

    def _shape(self, site: str, link: str, rate: int, *, lasting: bool = True) -> None:
        burst = max(2 * PACKET_BYTES, int(rate * BURST_S))
        bucket = f"tbf rate {8 * rate}bit burst {burst} latency {QUEUE_MS}ms"
        _run([*self._inside(site), "tc", "qdisc", "replace", "dev", link, "root", *bucket.split()])
        if lasting:
            self._shaped.add(f"{site} {link}")

    def _rule(self, rule: str) -> None:
        if rule not in self._rules:
            self._ip(ROUTER, f"rule add {rule}")
            self._rules.append(rule)

    def _selector(self, source: str, destination: str) -> str:
        return f"from {self.address(source)} to {self.address(destination)}"

    def _cable(self, site: str) -> str:
        """The site's end of it."""
        return "eth0" if site != HERE else f"zk{os.getpid()}-{self._number}"

    def _inside(self, site: str) -> list[str]:
        holder = self._holders.get(site)
        return ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"] if holder is not None else []

    def _ip(self, site: str, *commands: str) -> None:
        for each in commands:
            _run([*self._inside(site), "ip", *each.split()])


def _directions(source: str, destination: str, *, one_way: bool) -> tuple[tuple[str, str], ...]:
    forth, back = (source, destination), (destination, source)
    return (forth,) if one_way else (forth, back)


def _free_subnet() -> str:
    """Three numbers of an address, of this process where nobody else has them."""
    for step in range(128):
        number = os.getpid() + step * 97
        subnet = f"10.{64 + number // 256 % 128}.{number % 256}"
        known = _run(["ip", "-4", "-o", "route", "show", "to", "match", f"{subnet}.0/24"]).splitlines()
        within = _run(["ip", "-4", "-o", "route", "show", "to", "root", f"{subnet}.0/24"]).splitlines()
        if not within and all(route.startswith("default") for route in known):
            return subnet
    raise OSError("every network from 10.64 to 10.191 that was tried is in use")


def _held_network() -> subprocess.Popen[bytes]:
    """A process that does nothing in a network of its own."""
    holder = spawn(["unshare", "--net", "--", "sleep", "infinity"])
    own, place = os.readlink("/proc/self/ns/net"), Path(f"/proc/{holder.pid}/ns/net")
    deadline = time.monotonic() + START_S
    while holder.poll() is None and time.monotonic() < deadline:
        if str(place.readlink()) != own:
            return holder
        time.sleep(0.005)
    holder.kill()
    holder.wait()
    raise OSError(f"no network of its own within {START_S} s: unshare ended with {holder.returncode}")


def _run(argv: Sequence[str]) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@contextmanager
def cut_networks(*sites: str) -> Iterator[CutNetworks]:
    networks = CutNetworks(*sites)
    with ExitStack() as stack:
        stack.callback(networks.close)
        networks.open()
        yield networks
