"""What a request's Authorization header holds. Pure."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PasswordCredential:
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BearerCredential:
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class LinkCredential:
    """What is in the fragment of a one-time link."""

    secret: str = field(repr=False)


Credential = PasswordCredential | BearerCredential


def read_credential(headers: list[str]) -> Credential | None:
    """Of all Authorization headers of a request; None: there is none. Raises ValueError, without the header's
    text, for more than one, another scheme, or one that cannot be read."""
    if not headers:
        return None
    if len(headers) > 1:
        raise ValueError("the request has more than one Authorization header")
    scheme, _, value = headers[0].strip().partition(" ")
    value = value.strip()
    match scheme.lower():
        case "basic":
            return _basic(value)
        case "bearer" if value:
            return BearerCredential(value)
    raise ValueError("Authorization has the scheme Basic or Bearer")


def _basic(value: str) -> PasswordCredential:
    try:
        user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise ValueError("Authorization: Basic is followed by user:password in UTF-8, as base64") from None
    if not colon or not user:
        raise ValueError("Authorization: Basic is followed by user:password in UTF-8, as base64")
    return PasswordCredential(user, password)
