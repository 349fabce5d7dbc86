"""The catalog's memory of the metastore, so that each can tell when the other went back in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from catalog.core.level import NO_LEVEL
from catalog.core.versions import CatalogSnapshot, EntryKind, ZoneEntry
from catalog.core.zone import NO_ZONE, ZoneId, ZoneIntent


@dataclass(frozen=True, slots=True)
class MetastoreMark:
    """``nonce`` was written to the metastore at ``revision``, the highest that was seen, in ``epoch``.

    ``cluster_id`` is the metastore's own name for itself. Epochs count from 1.
    """

    epoch: int
    revision: int
    nonce: str
    cluster_id: str


@dataclass(frozen=True, slots=True)
class SentIntent:
    """Version of a zone that was published."""

    zone_id: ZoneId
    version: int


@dataclass(frozen=True, slots=True)
class CatalogTruth:
    """The catalog's side, read at one moment. ``mark``: None before the first meeting of the two stores.
    ``knows_intent``: the catalog itself wrote the intent that was asked about. ``sent`` is the newest intent
    that was published. ``level``: the release level that the catalog has been finalised at."""

    mark: MetastoreMark | None
    version: int
    knows_intent: bool = True
    sent: SentIntent | None = None
    level: int = NO_LEVEL


@dataclass(frozen=True, slots=True)
class AdoptedVersion:
    """The catalog version by which a metastore is adopted: every zone again, and the end of unknown ones."""

    snapshot: CatalogSnapshot
    entries: tuple[ZoneEntry, ...]

    @property
    def dropped(self) -> tuple[ZoneEntry, ...]:
        return tuple(entry for entry in self.entries if entry.kind is EntryKind.DROPPED)


def adopt_intents(
    catalog: CatalogSnapshot, intents: Sequence[ZoneIntent], held: ZoneId = NO_ZONE
) -> AdoptedVersion:
    """The version that puts ``catalog`` above all ``intents`` which the metastore holds.

    Intents only ever move to a higher version, so it jumps over the highest of them. Ids of zones that only the
    metastore knows are never given again, nor are those up to ``held``, of which nodes have something; zones
    that only the metastore knows end.
    """
    version = max((catalog.version, *(intent.version for intent in intents))) + 1
    known = {zone.zone_id for zone in catalog.zones}
    lost = [intent.zone for intent in intents if not intent.dropped and intent.zone.zone_id not in known]
    highest = max((held, *(intent.zone.zone_id for intent in intents)))
    next_zone_id = max(catalog.next_zone_id, ZoneId(highest + 1))
    entries = (
        *(ZoneEntry(EntryKind.WRITTEN, zone) for zone in catalog.zones),
        *(ZoneEntry(EntryKind.DROPPED, zone) for zone in lost),
    )
    return AdoptedVersion(replace(catalog, version=version, next_zone_id=next_zone_id), entries)
