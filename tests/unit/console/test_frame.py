"""Status in the frame of a page while the state that it shows changes."""

from __future__ import annotations

from types import SimpleNamespace

from markupsafe import Markup

from app.console.frame import PageFrame
from catalog.core.audit import Actor

READY = {
    "ready": True,
    "catalog": "ok",
    "metastore": "ok",
    "unprotected": [],
    "recovered_administrators": [],
    "upgrade": [],
}


class Place:
    """A part of a page, as elements and fragments are."""

    content = ""

    def set_content(self, content: str) -> None:
        self.content = content

    def show(self, content: Markup) -> None:
        self.content = content


class Feed:
    def __init__(self) -> None:
        self.unread = 0

    def seen(self, *parts: object) -> tuple[object, ...]:
        return ()


class Alerts:
    """None; while they are asked for, ``come`` partitions become unread."""

    ended = ()
    silences = SimpleNamespace(now=lambda: ())

    def __init__(self, feed: Feed) -> None:
        self.come = 0
        self._feed = feed

    @property
    def alerts(self) -> tuple[object, ...]:
        self._feed.unread += self.come
        self.come = 0
        return ()


class Site:
    """Site at one revision of the keyspace."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.alerts = Alerts(self.feed)
        mirror = SimpleNamespace(revision=7, is_loaded=True)
        self.services = SimpleNamespace(alerts=self.alerts, mirror=mirror, require_metastore=lambda: None)

    async def readiness(self) -> dict[str, object]:
        return dict(READY)

    async def silence(self) -> None:
        return None

    def look_at_alerts(self) -> None:
        pass


async def test_partitions_that_become_unread_while_the_status_is_made_are_not_shown_for_ever() -> None:
    """Unread partitions are read soon, and the keyspace stays at its revision: nothing else would change the
    status."""
    site, status = Site(), Place()
    frame = PageFrame(site, Actor(""), status, Place(), Place(), Place())
    site.alerts.come = 43
    await frame.redraw()
    site.feed.unread = 0
    await frame.redraw()
    assert "live" in status.content
    site.feed.unread = 43
    await frame.redraw()
    assert "reading 43 partitions" in status.content
    site.feed.unread = 0
    await frame.redraw()
    assert "live" in status.content
