"""Protections against strangers, and those that are missing, which every page of the console, `zonectl status`
and readiness show. Off loopback nothing listens without all of them, unless the command line has
``--insecure``, which no file and no variable of the environment can replace."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Set
from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """True if all addresses of the name are on loopback. Raises OSError for a name that is not known."""
    return all(ip_address(info[4][0]).is_loopback for info in socket.getaddrinfo(host, None))


def missing_protections(*, has_login: bool, has_tls: bool) -> tuple[str, ...]:
    """Missing protections in words, for the refusal to start and for `zonectl status`."""
    missing = {
        "no login: any client has full access (--no-auth)": has_login,
        "no TLS: what is sent can be read and changed on its way (--tls-cert, --tls-key)": has_tls,
    }
    return tuple(text for text, is_there in missing.items() if not is_there)


def left_open(*, has_login: bool) -> tuple[str, ...]:
    """Access that anyone on the machine has, in words: on loopback no protection is required."""
    return (
        () if has_login else ("no login: every user and program of this machine may do everything (--no-auth)",)
    )


def open_links(*, members: str, has_tls: bool, metastore: Set[str], has_metastore_tls: bool) -> dict[str, str]:
    """Connections between machines without TLS, in words, by host. ``members``: the address on which members
    listen; empty: the process has none. ``metastore``: the hosts of its endpoints."""
    links = {}
    if members and not has_tls:
        links[members] = (
            "no TLS between members: whoever reaches them reads and writes keys past every grant "
            "(ZONEKEEPER_TLS_CA, ZONEKEEPER_TLS_CERTIFICATE, ZONEKEEPER_TLS_KEY)"
        )
    if not has_metastore_tls:
        text = "no TLS to the metastore: whoever is on the way reads and changes all that is intended "
        links |= dict.fromkeys(metastore - links.keys(), f"{text}(ZONEKEEPER_METASTORE_TLS)")
    return links


def require_links(links: Mapping[str, str], *, insecure: bool) -> tuple[str, ...]:
    """Texts of the open links that leave the machine. Raises ValueError when there are some, unless
    ``insecure``."""
    open_to_others = leaving(links)
    if open_to_others and not insecure:
        lines = "; ".join(f"{host}: {text}" for host, text in sorted(open_to_others.items()))
        raise ValueError(
            f"this is reached from other machines. {lines}. Add it, or accept the risk with --insecure"
        )
    return tuple(sorted(set(open_to_others.values())))


def leaving(links: Mapping[str, str]) -> dict[str, str]:
    """Links that leave the machine, by host."""
    return {host: text for host, text in links.items() if not _stays(host)}


def _stays(host: str) -> bool:
    try:
        return is_loopback(host)
    except OSError:
        return False


def require_protections(host: str, missing: tuple[str, ...], *, insecure: bool) -> tuple[str, ...]:
    """The protections that are missing on an address that others reach; empty on loopback. Raises ValueError
    when some are, unless ``insecure``."""
    if not missing or is_loopback(host):
        return ()
    if not insecure:
        raise ValueError(
            f"{host} is reached from other machines, and this is missing: {'; '.join(missing)}. "
            "Listen on 127.0.0.1, add it, or accept the risk with --insecure"
        )
    return missing
