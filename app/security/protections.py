"""What keeps strangers out, and what is missing of it: shown on every page of the console, by `zonectl status`
and in readiness. Off loopback nothing listens without all of it, unless the command line says ``--insecure``; a
file or the environment cannot."""

from __future__ import annotations

import socket
from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether every address that the name stands for is one of the loopback. Raises OSError for a name that is
    not known."""
    return all(ip_address(info[4][0]).is_loopback for info in socket.getaddrinfo(host, None))


def missing_protections(*, has_login: bool, has_tls: bool) -> tuple[str, ...]:
    """In words, for the line that refuses to start and for `zonectl status`."""
    missing = {
        "no login: whoever reaches the API may do everything (--no-auth)": has_login,
        "no TLS: what is sent can be read and changed on its way (--tls-cert, --tls-key)": has_tls,
    }
    return tuple(text for text, is_there in missing.items() if not is_there)


def left_open(*, has_login: bool) -> tuple[str, ...]:
    """On loopback, where nothing is required: what whoever is on the machine may do."""
    return (
        () if has_login else ("no login: every user and program of this machine may do everything (--no-auth)",)
    )


def require_protections(host: str, missing: tuple[str, ...], *, insecure: bool) -> tuple[str, ...]:
    """What is missing on an address that others reach; empty on loopback. Raises ValueError when something is,
    and ``insecure`` is not said."""
    if not missing or is_loopback(host):
        return ()
    if not insecure:
        raise ValueError(
            f"{host} is reached from other machines, and this is missing: {'; '.join(missing)}. "
            "Listen on 127.0.0.1, add it, or accept the risk with --insecure"
        )
    return missing
