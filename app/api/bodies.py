"""JSON bodies: their fields, which have exactly the types of the API's document, their texts, which are UTF-8,
and the bodies of operations."""

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
    """Base of request bodies: no value is read as another type, as "5" or true for a number, and no unknown
    field is accepted."""

    model_config = ConfigDict(extra="forbid", strict=True)


def as_whole(value: object) -> object:
    """Convert a float without a fraction to an int: JSON has one kind of numbers, so 3.0 is 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(as_whole)]


def whole_between(lowest: int | None, highest: int) -> Any:
    """The type of a whole number within inclusive bounds, which the API's document names too; None: no lower
    one."""
    return Annotated[int, Field(ge=lowest, le=highest), BeforeValidator(as_whole)]


JSON_INT_MAX = (1 << 53) - 1
"""Largest whole number that every JSON parser has."""


def _visible(name: str) -> str:
    """Check that a name has no hidden character. Raises ValueError."""
    hidden = hidden_character(name)
    if hidden is not None:
        raise ValueError(f"a name may not have a character that cannot be seen, such as {hidden}")
    return name


Person = Annotated[
    str, Field(max_length=NAME_MAX, json_schema_extra={"pattern": VISIBLE_PATTERN}), AfterValidator(_visible)
]
"""Name of the author of a change, in a body."""


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
    """Check the body, for every route: a change is sent as JSON, which no form of another site can send, and
    each text of the body can be stored and returned. Raises RefusedError."""
    fields = Fields.of(request.scope)
    refusal = media_type_refusal(request.method, request.scope["path"], fields)
    if refusal is not None:
        raise refusal
    if _is_json(fields):
        check_json(await request.body())


def media_type_refusal(method: str, path: str, fields: Fields) -> RefusedError | None:
    """The refusal of a body that is not JSON; None: there is nothing to refuse. PUT, PATCH and DELETE may have
    no body, since forms do not send them. SQL is sent as text, with a header that no form sends."""
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
    """Check that a JSON text is UTF-8 without halves of characters. Raises RefusedError (TEXT_NOT_UTF8)."""
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
