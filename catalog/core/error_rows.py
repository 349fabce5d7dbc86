"""Rows of the table of errors (``catalog.core.errors``), and what a row is.

By subject: requests that no route sees; logins, and what they allow; nodes that leave; statements about users,
roles and grants; the terms of a write of a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ProtocolType(Enum):
    """The types of errors of the Trino client protocol: clients choose an exception class by it."""

    USER_ERROR = "USER_ERROR"
    """The statement or request is to blame."""

    INTERNAL_ERROR = "INTERNAL_ERROR"
    """The service is to blame."""

    INSUFFICIENT_RESOURCES = "INSUFFICIENT_RESOURCES"
    """Good, but there is not enough room."""

    EXTERNAL = "EXTERNAL"
    """Fault of something that the service depends on."""


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One row: ``action`` says to a person what to do about it."""

    code: int
    sqlstate: str
    http_status: int
    title: str
    action: str
    protocol_type: ProtocolType = ProtocolType.USER_ERROR


def no_room(code: int, http_status: int, title: str, action: str) -> ErrorRow:
    """A row for what would be done if others did less."""
    return ErrorRow(code, "53300", http_status, title, action, ProtocolType.INSUFFICIENT_RESOURCES)


def outside(code: int, sqlstate: str, http_status: int, title: str, action: str) -> ErrorRow:
    """A row for what something that the service depends on is to blame for."""
    return ErrorRow(code, sqlstate, http_status, title, action, ProtocolType.EXTERNAL)


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


NODE_NOT_FOUND = ErrorRow(
    4202, "42704", 404, "The node does not exist", "`zonectl status` lists them; names are case-sensitive."
)
DRAIN_LEAVES_NO_DATA_NODE = ErrorRow(
    5003,
    "55006",
    409,
    "A zone would have no data node",
    "Start another node that the zone can use, or change the zone.",
)
NODE_ALIVE = ErrorRow(
    5004, "55006", 409, "The node is alive", "Drain a node that lives; remove one that is gone for good."
)
UPGRADE_NOT_READY = ErrorRow(
    5006,
    "55006",
    409,
    "The upgrade cannot be finalised yet",
    "Start the new version of what the message names: nothing was changed.",
)
NODE_NEEDED = ErrorRow(
    5005,
    "55006",
    409,
    "Partitions need the node",
    "Start the node, or recover the partitions that the message names.",
)


USER_NOT_FOUND = ErrorRow(
    4301,
    "42704",
    404,
    "The user does not exist",
    "SHOW USERS lists them; IF EXISTS ignores one that is missing.",
)
USER_ALREADY_EXISTS = ErrorRow(
    4302, "42710", 409, "The user already exists", "Use another name, or IF NOT EXISTS."
)
ROLE_NOT_FOUND = ErrorRow(
    4303,
    "42704",
    404,
    "The role does not exist",
    "SHOW ROLES lists them; IF EXISTS ignores one that is missing.",
)
ROLE_ALREADY_EXISTS = ErrorRow(
    4304, "42710", 409, "The role already exists", "Use another name, or IF NOT EXISTS."
)
ROLE_PROTECTED = ErrorRow(
    4305, "42939", 409, "The role cannot be changed", "Create a role of your own: CREATE ROLE."
)
LAST_ADMINISTRATOR = ErrorRow(
    4306, "55006", 409, "No administrator would be left", "Grant ADMIN ON SYSTEM to another active user first."
)
GRANT_INVALID = ErrorRow(
    4307, "0LP01", 400, "The privilege cannot be granted like this", "Use an object that the message names."
)
PRIVILEGE_UNKNOWN = ErrorRow(
    4308, "22023", 400, "The privilege does not exist", "Use one of the privileges that the message lists."
)
PASSWORD_INVALID = ErrorRow(
    4309,
    "22023",
    400,
    "The password is not accepted",
    "Use a password within the bounds that the message names.",
)
USER_NAME_INVALID = ErrorRow(
    4310, "42602", 400, "The name of a user or role is not valid", "Use characters that the message names."
)


KEY_EXISTS = ErrorRow(
    8011, "23505", 409, "The key exists", "Nothing was written. Read the key, and write with its revision."
)
REVISION_CHANGED = ErrorRow(
    8012,
    "40001",
    412,
    "The key is not at the wanted revision",
    "Nothing was written. Read the key again, and decide with what it holds now.",
)
OPERATION_ABANDONED = ErrorRow(
    8013,
    "57014",
    409,
    "The write was abandoned by a later one",
    "It was not applied, and never will be. Read the key, and write with a new operation id.",
)
