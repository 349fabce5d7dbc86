"""Rows of the table of errors (``catalog.core.error_kinds``): requests that no route sees."""

from __future__ import annotations

from catalog.core.error_rows import ErrorRow

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
FORWARDED_REFUSED = ErrorRow(
    8110,
    "42501",
    403,
    "The server takes no requests that a proxy has forwarded",
    "Start it with --auth, or ask it without the proxy.",
)
REASON_REQUIRED = ErrorRow(
    8111, "22004", 400, "The change has no reason", "Say why, in one line: nothing was changed."
)
