"""JSON bodies: their parts, which are exactly of the types that the document names, their texts, which are
UTF-8, and the bodies of the operations' resources."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import Request
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from app.edge.headers import JSON, SQL_PROTOCOL, Fields
from catalog.core.audit import NAME_MAX, REASON_MAX, checked_reason
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.visible import VISIBLE_PATTERN, hidden_character, visible
from catalog.core.zone_options import PARTITIONS_MAX

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SHOWN_CHARS_MAX = 80


class RequestBody(BaseModel):
    """Nothing is read as another type, as "5" or true for a number, and nothing unknown is passed over."""

    model_config = ConfigDict(extra="forbid", strict=True)


def as_whole(value: object) -> object:
    """JSON has one kind of numbers: 3.0 is 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(as_whole)]


def whole_between(lowest: int | None, highest: int) -> Any:
    """A whole number within inclusive bounds, which the API's document says, too; None: no lower one."""
    return Annotated[int, Field(ge=lowest, le=highest), BeforeValidator(as_whole)]


JSON_INT_MAX = (1 << 53) - 1
"""Every JSON parser has whole numbers up to this one."""


def _visible(name: str) -> str:
    """Raises ValueError."""
    hidden = hidden_character(name)
    if hidden is not None:
        raise ValueError(f"a name may not have a character that cannot be seen, such as {hidden}")
    return name


Person = Annotated[
    str, Field(max_length=NAME_MAX, json_schema_extra={"pattern": VISIBLE_PATTERN}), AfterValidator(_visible)
]
"""Who asks, in a body."""


def _one_line(text: str) -> str:
    try:
        return checked_reason(text)
    except RefusedError as error:
        raise ValueError(error.message) from error


Reason = Annotated[
    str,
    Field(
        max_length=REASON_MAX,
        description="reason recorded in the audit log, one line",
        json_schema_extra={"pattern": VISIBLE_PATTERN},
    ),
    AfterValidator(_one_line),
]

# Everything up to an escape that is half of a character, in one pass: what was taken is never tried again.
_WHOLE = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?!u[dD][89a-fA-F]).)*+",
    re.DOTALL,
)
_PERHAPS_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


async def require_json(request: Request) -> None:
    """For every route: what changes something is JSON, which no form of another site can send, and each text of
    the body can be stored and sent back. Raises RefusedError."""
    fields = Fields.of(request.scope)
    refusal = media_type_refusal(request.method, request.scope["path"], fields)
    if refusal is not None:
        raise refusal
    if _is_json(fields):
        check_json(await request.body())


def media_type_refusal(method: str, path: str, fields: Fields) -> RefusedError | None:
    """PUT, PATCH and DELETE are no forms' methods: without a body they say all there is. SQL is sent as text,
    with a header that no form sends."""
    if method in SAFE_METHODS or path.startswith(SQL_PROTOCOL) or _is_json(fields):
        return None
    if method != "POST" and not fields.has_body:
        return None
    kind = fields.first(b"content-type", "none")[:SHOWN_CHARS_MAX]
    message = f"{method} {visible(path)} needs Content-Type {JSON}, also without a body; it has {visible(kind)}"
    return RefusedError(ErrorKind.MEDIA_TYPE_REFUSED, message)


def _is_json(fields: Fields) -> bool:
    kind = fields.media_type
    return kind == JSON or (kind.startswith("application/") and kind.endswith("+json"))


def check_json(body: bytes) -> None:
    """Of a text that is JSON. Raises RefusedError (TEXT_NOT_UTF8)."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        message = f"the body is not UTF-8 (byte {error.start + 1})"
        raise RefusedError(ErrorKind.TEXT_NOT_UTF8, message) from error
    if _PERHAPS_HALF.search(body) is None:
        return
    whole = _WHOLE.match(body)
    assert whole is not None, "it takes nothing, too"
    half = body[whole.end() : whole.end() + 6]
    if half:
        message = f"{half.decode()} (byte {whole.end() + 1} of the body) is half of a character"
        raise RefusedError(ErrorKind.TEXT_NOT_UTF8, message)


DAYS_MAX = 366

PartitionNumber = Annotated[Whole, Field(ge=0, lt=PARTITIONS_MAX)]


class ActionRequest(RequestBody):
    by: Person | None = Field(
        None, description="name recorded in the audit log if no proxy supplies one; null: the header's"
    )
    reason: Reason = ""


class OperationPause(ActionRequest):
    for_s: float | None = Field(
        None, gt=0, le=DAYS_MAX * 86_400, description="duration in seconds; null: no end"
    )


class PartitionsCancel(ActionRequest):
    partitions: list[PartitionNumber] = Field(min_length=1, max_length=PARTITIONS_MAX, examples=[[3, 4]])


class FinaliseRequest(ActionRequest):
    """Either ``dry_run``, or the number of copies that it has shown."""

    dry_run: bool = Field(False, description="only say how many copies would be deleted")
    copies: int | None = Field(
        None,
        ge=0,
        description="number that a dry run has shown; if it has changed since, nothing is done (409)",
    )
