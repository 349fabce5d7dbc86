"""Rows of the table of errors (``catalog.core.error_kinds``): who logs in, with what, and what that allows."""

from __future__ import annotations

from catalog.core.error_rows import ErrorRow, no_room, outside

UNAUTHENTICATED = ErrorRow(
    8301,
    "28000",
    401,
    "The request is not logged in",
    "Send a user and password, or a token, over HTTPS: `zonectl login` stores one.",
)
PRIVILEGE_MISSING = ErrorRow(
    8302,
    "42501",
    403,
    "A privilege is missing",
    "Ask an administrator for the privilege that the message names.",
)
LOGIN_LIMITED = no_room(8303, 429, "Too many logins", "Wait for the time in Retry-After, and try again.")
CREDENTIAL_NOT_ENCRYPTED = ErrorRow(
    8304,
    "28000",
    403,
    "Passwords and tokens are not accepted without TLS",
    "Use the HTTPS address. Change the password or revoke the token: others may have read it.",
)
TOKEN_NOT_FOUND = ErrorRow(
    8305, "42704", 404, "The token does not exist", "`zonectl token list` lists the tokens of a user."
)
TOKEN_TOO_BROAD = ErrorRow(
    8306,
    "42501",
    403,
    "The token would allow more than its maker may",
    "Request a shorter lifetime and a scope within your own.",
)
GRANTS_UNAVAILABLE = outside(
    8307, "58000", 503, "Users and privileges cannot be read", "Try again when the catalog is available."
)
CONSOLE_SOCKET_LIMIT = no_room(8308, 429, "The user has too many pages open", "Close some of them.")
LOGIN_PROOF_LIMIT = no_room(
    8309, 429, "The user has too many tokens or links", "Revoke some, or wait until they expire."
)
