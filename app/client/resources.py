"""Paths of the REST API's resources."""

from __future__ import annotations

from urllib.parse import quote


def segment(text: str) -> str:
    """One path segment; dots are escaped too, because ``.`` and ``..`` would be taken for folders."""
    return quote(text, safe="").replace(".", "%2E")


def key_path(zone: str, key: str) -> str:
    return f"/api/v1/zones/{segment(zone)}/kv/{segment(key)}"


def routing_path(zone: str) -> str:
    return f"/api/v1/zones/{segment(zone)}/routing"
