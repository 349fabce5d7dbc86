"""The audit."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypedDict

from app.contract.marks import About


class AuditBody(TypedDict):
    number: Annotated[int, About("grows with each change")]
    at: Annotated[str, About("UTC")]
    action: Annotated[str, About("a statement's first words, or what was done", examples=["ALTER ZONE"])]
    subject: Annotated[str, About("zone, table, node or operation; several with commas")]
    by: Annotated[str | None, About("null: no name was given")]
    verified: Annotated[bool, About("false: the name is what the client said")]
    channel: Annotated[str, About("REST, CLI, CONSOLE, SQL, or SYSTEM")]
    address: str
    reason: str
    details: Annotated[str, About("the statement, or the request as JSON")]
    catalog_version_before: int
    catalog_version_after: int
    request_id: Annotated[str | None, About("of the answer's X-Request-Id; null: of no request")]


class AuditRecords(TypedDict):
    records: Annotated[list[AuditBody], About("the newest first")]
    next_page_token: Annotated[str | None, About("opaque; null: these were the last")]
