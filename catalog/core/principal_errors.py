"""Rows of the table of errors (``catalog.core.error_kinds``): statements about users, roles and grants."""

from __future__ import annotations

from catalog.core.error_rows import ErrorRow

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
