"""What an adopted metastore may not decide: whether a member's data is still needed.

A metastore that was restored from an older backup knows nothing of later moves, and adopting it changes only
the catalog's part. Until the group has spoken, a node that is assigned nowhere may hold the newest data.
"""

from __future__ import annotations

from catalog.core.zone import ZoneIntent
from rebalance.core.epoch import FIRST_EPOCH, EpochRecord
from rebalance.core.readable import readable
from rebalance.core.records import ConfigurationRecord
from rebalance.core.txn import KeyValue


def why_kept(
    peer_url: str, epoch: KeyValue | None, configuration: KeyValue | None, intent: KeyValue | None
) -> str:
    """Why a member with data that is assigned nowhere is kept for now; empty: it may be destroyed. ``peer_url``
    is empty for a mirror, which no group counts.

    After an adoption two words count: the catalog's, that the zone is dropped, and the group's own
    configuration, when its leader published it after the adoption and without this member. Raises
    RecordNotReadableError: a word that cannot be read is none.
    """
    if epoch is None or readable(epoch, EpochRecord.decode).epoch == FIRST_EPOCH:
        return ""
    if intent is not None and readable(intent, ZoneIntent.decode).dropped:
        return ""
    if configuration is None or configuration.mod_revision < epoch.mod_revision:
        return "the metastore was adopted, and the group has not published its members since"
    members = readable(configuration, ConfigurationRecord.decode).members
    if peer_url and any(member.peer_url == peer_url for member in members.values()):
        return "the group counts it among its members"
    return ""
