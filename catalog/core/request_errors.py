"""Rows of the table of errors for requests: their form, their size and time, statements that are asked for
again, and what is refused before anybody looks at what it asks for."""

from __future__ import annotations

from catalog.core.error_rows import ErrorRow

INVALID_REQUEST = ErrorRow(8001, "22023", 400, "The request is not valid", "Correct the request.")
PARAMETERS_MISMATCH = ErrorRow(
    8003, "07001", 400, "The parameters do not match the statement", "Give exactly one value for each ?."
)
KEY_NOT_FOUND = ErrorRow(8002, "02000", 404, "The key does not exist", "Check the key and the zone.")
IDEMPOTENCY_KEY_REUSED = ErrorRow(
    8009, "22023", 422, "The idempotency key belongs to another statement", "Use a new key for a new statement."
)
STATEMENT_NOT_FOUND = ErrorRow(
    8004, "02000", 404, "The statement does not exist", "Results are kept for a limited time: send it again."
)
STATEMENT_RESULT_GONE = ErrorRow(
    8005, "55000", 410, "The result is no longer available", "Read pages in order, or send the statement again."
)
STATEMENT_CANCELED = ErrorRow(
    8006, "57014", 409, "The statement was canceled", "Read the state back: the message says what was kept."
)
STATEMENT_TIMED_OUT = ErrorRow(
    8007, "57014", 409, "The statement took too long", "Allow more time. The message says what was kept."
)
PREPARED_STATEMENT_UNKNOWN = ErrorRow(
    8008, "26000", 400, "The prepared statement does not exist", "PREPARE it first."
)
REVISION_GONE = ErrorRow(
    8010, "55000", 410, "The revision is no longer available", "Read at a newer revision, or at a time."
)
ORIGIN_REFUSED = ErrorRow(
    8101,
    "42501",
    403,
    "Requests of other origins are not allowed",
    "Open the server's own page, or add the origin to ZONEKEEPER_ALLOWED_ORIGINS.",
)
HOST_REFUSED = ErrorRow(
    8102,
    "42501",
    403,
    "The server does not accept this host name",
    "Use an IP address or localhost, or add the name to ZONEKEEPER_ALLOWED_HOSTS.",
)
USER_REQUIRED = ErrorRow(8103, "28000", 400, "The statement names no user", "Send the header X-Trino-User.")
MEDIA_TYPE_REFUSED = ErrorRow(
    8104, "22023", 415, "The request is not JSON", "Send Content-Type: application/json."
)
REQUEST_TOO_LARGE = ErrorRow(
    8105, "54000", 413, "The request is too large", "Send less in one request: nothing was changed."
)
REQUEST_TOO_SLOW = ErrorRow(
    8106, "57014", 408, "The request did not arrive in time", "Send it again: nothing was changed."
)
HEADERS_TOO_LARGE = ErrorRow(
    8107, "54000", 431, "The request's headers are too large", "Send fewer or shorter headers."
)
REQUEST_MALFORMED = ErrorRow(
    8108, "08P01", 400, "The request is not HTTP", "Send HTTP/1.1 without TLS, or repair the client."
)
SHOWN_STATE_CHANGED = ErrorRow(
    8109,
    "40001",
    409,
    "The state has changed since it was shown",
    "Look again, and confirm what is shown now: nothing was changed.",
)
TEXT_NOT_UTF8 = ErrorRow(
    8201,
    "22021",
    400,
    "The text is not UTF-8",
    "Send whole characters, percent-encoded in addresses.",
)
METHOD_NOT_ALLOWED = ErrorRow(
    8202, "0A000", 405, "The address does not accept this method", "Use a method that the header Allow names."
)
ADDRESS_NOT_FOUND = ErrorRow(8203, "42704", 404, "The address does not exist", "See /docs for the addresses.")
