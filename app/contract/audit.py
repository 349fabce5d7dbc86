"""The audit."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypedDict

from app.contract.columns import Long, Named, PreciseMoment
from app.contract.marks import About


class AuditBody(TypedDict):
    number: Annotated[Long, Named("grows with each change", "AUDIT_NUMBER")]
    at: Annotated[PreciseMoment, Named(sql="AT")]
    action: Annotated[
        str,
        Named("a statement's first words, or what was done", "ACTION", "entry.action", example="ALTER ZONE"),
    ]
    subject: Annotated[
        str, Named("zone, table, node or operation; several with commas", "SUBJECT", "entry.subject")
    ]
    by: Annotated[str | None, Named("null: no name was given", "ACTOR", "entry.actor.name")]
    verified: Annotated[
        bool, Named("false: the name is what the client said", "IS_VERIFIED", "entry.actor.verified")
    ]
    channel: Annotated[str, Named("REST, CLI, CONSOLE, SQL, or SYSTEM", "CHANNEL", "entry.actor.channel")]
    address: Annotated[str, Named(sql="ADDRESS", of="entry.actor.address")]
    reason: Annotated[str, Named(sql="REASON", of="entry.reason")]
    details: Annotated[str, Named("the statement, or the request as JSON", "DETAILS", "entry.details")]
    catalog_version_before: Annotated[Long, Named(sql="CATALOG_VERSION_BEFORE", of="entry.version_before")]
    catalog_version_after: Annotated[Long, Named(sql="CATALOG_VERSION_AFTER", of="entry.version_after")]
    request_id: Annotated[
        str | None,
        Named("of the answer's X-Request-Id; null: of no request", "REQUEST_ID", "entry.actor.request_id"),
    ]


class AuditRecords(TypedDict):
    records: Annotated[list[AuditBody], About("the newest first")]
    next_page_token: Annotated[str | None, About("opaque; null: these were the last")]
