"""Logins, their tokens, and links to the console."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypedDict

from app.contract.marks import About


class WhoAmI(TypedDict):
    source: Annotated[str, About("local: a user of the catalog; else the issuer that vouches for the name")]
    name: str
    roles: Annotated[list[str], About("of the catalog")]
    proof: Annotated[str, About("PASSWORD, TOKEN or JWT")]
    token_id: Annotated[str | None, About("of the token that was sent")]
    scope: Annotated[str, About("privileges that the token is limited to; empty: all that its owner has")]
    expires_at: Annotated[str | None, About("UTC; null: a password does not expire")]


class TokenBody(TypedDict):
    token_id: str
    owner: str
    scope: Annotated[str, About("privileges that it is limited to; empty: all that its owner has")]
    created_at: Annotated[str, About("UTC")]
    expires_at: Annotated[str, About("UTC")]
    revoked_at: Annotated[str | None, About("UTC; null: it was not revoked")]
    valid: Annotated[bool, About("neither expired nor revoked")]


class Tokens(TypedDict):
    tokens: Annotated[list[TokenBody], About("the newest first")]


class NewToken(TokenBody):
    secret: Annotated[str, About("shown once; the catalog keeps only a hash of it")]


class ConsoleLink(TypedDict):
    path: Annotated[str, About("of the console, with the secret as its fragment")]
    expires_at: Annotated[str, About("UTC; it logs in once")]
