"""Network of a client's address: limits by address count those together that one client can have."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address

IPV6_PREFIX = 64


@lru_cache(maxsize=4_096)
def network_of(address: str) -> str:
    """Return the network that counts as one client: an IPv6 address has its whole network of 64 bits. An IPv4
    address written as one of IPv6 is that IPv4 address; what is no address stands for itself."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(ip, IPv6Address):
        return str(ip)
    return str(ip.ipv4_mapped or IPv6Network((ip, IPV6_PREFIX), strict=False))
