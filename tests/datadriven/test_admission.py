"""Moves that begin under given limits, and causes for which the others wait (``scripts/admission.txt``).

A move is ``zone/partition:donors>receivers``, nodes joined by ``+``; a receiver with ``*`` has a member
already. ``pause`` and ``zonepause`` name the user who paused and the end of the pause; ``windows`` are joined
by ``+``, and a dot is between days and times. ``rates`` are those of the cluster and of a node, ``taken`` is
what is out of buckets (``*``: the cluster's) at ``at``, ``sizes`` the bytes of each copy. What begins is listed
first.
"""

from __future__ import annotations

from collections import Counter

from catalog.core.zone import ZoneId
from rebalance.core.admission.limit_options import Window
from rebalance.core.admission.move_admission import (
    Limits,
    Loads,
    Move,
    Pause,
    Rooms,
    TokenBuckets,
    Waiting,
    admit,
)
from tests.datadriven.runner import Block, run_script

CAPS = {"cluster": "cluster_moves", "zone": "zone_moves", "donor": "donor_moves", "receiver": "receiver_moves"}


def moves(text: str) -> list[tuple[ZoneId, int, Move]]:
    found = []
    for each in filter(None, text.split(",")):
        place, _, nodes = each.partition(":")
        zone, _, number = place.partition("/")
        donors, _, receivers = nodes.partition(">")
        gets = tuple(filter(None, receivers.split("+")))
        joins = tuple(node for node in gets if not node.endswith("*"))
        move = Move(tuple(filter(None, donors.split("+"))), tuple(node.rstrip("*") for node in gets), joins)
        found.append((ZoneId(int(zone)), int(number), move))
    return found


def pause(text: str) -> Pause:
    """``alice`` or ``alice@2000``: until 2000 ms."""
    by, _, until = text.partition("@")
    return Pause(by, "", 0, int(until) if until else None)


def limits(arguments: dict[str, str]) -> Limits:
    caps = {field: int(arguments[name]) for name, field in CAPS.items() if name in arguments}
    if "batch" in arguments:
        caps["batch_size"] = int(arguments["batch"])
    windows = arguments.get("windows", "")
    zone, _, by = arguments.get("zonepause", "").partition(":")
    return Limits(
        **caps,
        pause=pause(arguments["pause"]) if "pause" in arguments else None,
        zone_pauses={ZoneId(int(zone)): pause(by)} if zone else {},
        **{f"{name}_bytes_s": rate for name, rate in counts(arguments.get("rates", "")).items()},
        windows=tuple(Window.parse(each.replace(".", " ")) for each in windows.split("+") if each),
    )


def counts(text: str) -> dict[str, int]:
    return {name: int(count) for name, _, count in (each.partition(":") for each in text.split(",") if each)}


def execute(block: Block) -> str:
    arguments = block.arguments
    loads = Loads(members=Counter(counts(arguments.get("members", ""))))
    for zone, _, move in moves(arguments.get("moving", "")):
        loads.add(zone, move)
    members = counts(arguments.get("memberlimits", ""))
    taken = counts(arguments.get("taken", ""))
    buckets = TokenBuckets(int(arguments.get("at", "1000")), taken.pop("*", 0), dict(taken))
    size = int(arguments.get("sizes", "0"))
    now_ms = int(arguments.get("now", "1000"))
    rooms = Rooms(limits(arguments), loads, members, now_ms, None, buckets, lambda _zone, _number: size)
    waiting = moves(arguments["waiting"])
    lines: dict[ZoneId, list[Waiting]] = {}
    for zone, number, move in waiting:
        lines.setdefault(zone, []).append((number, move))
    admitted = admit(lines, rooms)
    begun = [f"{zone}/{number} begins" for zone, numbers in admitted.items() for number in numbers]
    waits = [
        f"{zone}/{number} {rooms.cause(zone, move)}"
        for zone, number, move in waiting
        if number not in admitted.get(zone, ())
    ]
    return "\n".join((*begun, *waits))


def test_script() -> None:
    """Each kind of limit, alone and with another one."""
    run_script("admission.txt", execute)
