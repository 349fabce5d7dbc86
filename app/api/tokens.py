"""``/api/v1/whoami``, ``/api/v1/tokens`` and ``/api/v1/console-links``: the user who is logged in, and the
means to log in."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import JSONResponse, Response
from pydantic import BeforeValidator, Field

from app.api.bodies import RequestBody, as_whole
from app.api.problems import answers
from app.api.services import Services, ServicesOf
from app.contract.logins import ConsoleLink, NewToken, TokenBody, Tokens, WhoAmI
from app.requests.context import Login, Proof, current_login
from app.security.access_view import AccessView
from app.security.console_login import LOGIN
from app.security.login_check import utc_now_us
from app.security.token_secrets import new_secret
from catalog.core.audit import Action
from catalog.core.authorisation import LOCAL, SYSTEM, Privilege
from catalog.core.credentials import (
    LIFETIME_DAYS_MAX,
    LIFETIME_US,
    LINK_US,
    AccessToken,
    TokenRequest,
    issue,
    reaches,
    scope_of,
    scope_text,
)
from catalog.core.errors import ErrorKind, RefusedError

router = APIRouter(prefix="/api/v1", tags=["logins"])

SCOPE_CHARS_MAX = 2_000
SECOND_US = 1_000_000
LIFETIME_S_MAX = LIFETIME_DAYS_MAX * 86_400


class TokenCreate(RequestBody):
    lifetime_s: Annotated[
        Annotated[int, Field(ge=1, le=LIFETIME_S_MAX), BeforeValidator(as_whole)] | None,
        Field(description="seconds; default: 30 days, or as long as the token that is sent"),
    ] = None
    scope: Annotated[
        str,
        Field(
            max_length=SCOPE_CHARS_MAX,
            description="privileges to limit it to, as `SEE, READ ON ALL ZONES; OPERATE ON SYSTEM`; a zone by "
            "its id, as `WRITE ON ZONE 7`. Empty: all that its owner has, within the scope of the token sent",
        ),
    ] = ""


class LinkCreate(RequestBody):
    """An empty object."""


@router.get("/whoami", **answers(WhoAmI, 401, 503))
async def whoami(services: ServicesOf) -> Response:
    """Show the user of the request. 401 also on a server that does not require a login."""
    login, access = _login(services)
    principal, token = login.caller.principal, login.token
    grants = await access.grants()
    roles = {role.name for role in (*login.caller.roles, *grants.roles_of.get(principal, ()))}
    return _private(
        {
            "source": principal.source,
            "name": principal.name,
            "roles": sorted(roles),
            "proof": login.proof.value,
            "token_id": token.token_id if token is not None else None,
            "scope": scope_text(login.caller.scope),
            "expires_at": _time(login.expires_us),
        }
    )


@router.get("/tokens", **answers(Tokens, 401, 403, 503))
async def list_tokens(
    services: ServicesOf,
    everybody: Annotated[bool, Query(alias="all", description="tokens of all users; requires ADMIN")] = False,
) -> Response:
    """List the caller's tokens, without their secrets. Ended tokens are listed for 90 days after their
    creation. A token with a scope lists the tokens within it."""
    login, access = _login(services)
    if everybody and not await _is_administrator(login, access):
        raise RefusedError(ErrorKind.PRIVILEGE_MISSING, "tokens of other users need ADMIN ON SYSTEM")
    tokens = await _reached(login, access, everybody=everybody)
    now_us = utc_now_us()
    return _private({"tokens": [_body(token, now_us) for token in tokens]})


@router.post("/tokens", status_code=201, **answers(NewToken, 400, 401, 403, 429, 503))
async def create_token(request: TokenCreate, services: ServicesOf) -> Response:
    """Create a token for the caller. The secret is returned in this answer only. A token created with another
    token has no broader scope and expires no later."""
    login, access = _login(services)
    principal = login.caller.principal
    if principal.source != LOCAL or login.proof is Proof.JWT:
        message = f"tokens belong to users of the catalog; {principal.source} issues tokens for its own"
        raise RefusedError(ErrorKind.PRIVILEGE_MISSING, message)
    secret, now_us = new_secret(), utc_now_us()
    lifetime_us = None if request.lifetime_s is None else request.lifetime_s * SECOND_US
    wish = TokenRequest(scope_of(request.scope), lifetime_us)
    token = issue(wish, principal, secret, now_us, login.token)
    await access.store.add_token(token, login.basis)
    details = {"scope": scope_text(token.scope), "expires_at": _time(token.expires_us)}
    await services.audit.record(Action.CREATE_TOKEN, token.token_id, details)
    return _private({**_body(token, now_us), "secret": secret}, 201)


@router.delete("/tokens/{token_id:segment}", **answers(TokenBody, 401, 404, 503))
async def revoke_token(token_id: Annotated[str, Path(max_length=32)], services: ServicesOf) -> Response:
    """Revoke a token; every server refuses it within 2 s. Revoking another user's token requires ADMIN. A token
    that the caller may not revoke counts as missing (404)."""
    login, access = _login(services)
    tokens = await _reached(login, access, everybody=await _is_administrator(login, access))
    token = next((one for one in tokens if one.token_id == token_id), None)
    if token is None:
        raise RefusedError(ErrorKind.TOKEN_NOT_FOUND, f"there is no token {token_id}")
    now_us = utc_now_us()
    await access.store.revoke_token(token_id, now_us)
    access.tokens.forget(token.digest)
    await services.audit.record(Action.REVOKE_TOKEN, token_id, {"owner": str(token.owner)})
    revoked = replace(token, revoked_us=now_us if token.revoked_us is None else token.revoked_us)
    return _private(_body(revoked, now_us))


@router.post("/console-links", status_code=201, **answers(ConsoleLink, 400, 401, 403, 429, 503))
async def create_console_link(request: LinkCreate, services: ServicesOf) -> Response:
    """Create a link that logs the caller in to the console, once, within five minutes. The secret is in the
    URL's fragment, which browsers do not send. A session has all privileges of its user: a caller with a token
    needs one without a scope that does not expire before the session."""
    login, _ = _login(services)
    principal, token, now_us = login.caller.principal, login.token, utc_now_us()
    sessions = services.sessions
    if sessions is None or principal.source != LOCAL or login.proof is Proof.JWT:
        message = f"links are for users of the catalog; {principal.source} vouches for its own"
        raise RefusedError(ErrorKind.PRIVILEGE_MISSING, message)
    if token is not None and (token.scope is not None or token.expires_us < now_us + LINK_US + LIFETIME_US):
        message = "a link needs a token without a scope, with eight hours left: the session may do as much"
        raise RefusedError(ErrorKind.TOKEN_TOO_BROAD, message)
    secret = await sessions.new_link(principal, login.basis)
    body: ConsoleLink = {"path": f"{LOGIN}#{secret}", "expires_at": _at(now_us + LINK_US)}
    await services.audit.record(Action.CREATE_CONSOLE_LINK, principal.name, {"expires_at": body["expires_at"]})
    return _private(body, 201)


def _login(services: Services) -> tuple[Login, AccessView]:
    """The request's login. Raises RefusedError (UNAUTHENTICATED)."""
    login = current_login()
    if login is None or services.access is None:
        raise RefusedError(ErrorKind.UNAUTHENTICATED, "this server takes requests without a login")
    return login, services.access


async def _reached(login: Login, access: AccessView, *, everybody: bool) -> tuple[AccessToken, ...]:
    """Tokens that the caller may list and revoke. ``everybody``: those of all users, for a caller with
    ADMIN."""
    if everybody:
        return await access.store.tokens(None)
    own = await access.store.tokens(login.caller.principal)
    return tuple(token for token in own if reaches(login.token, token))


async def _is_administrator(login: Login, access: AccessView) -> bool:
    return login.caller.may(await access.grants(), Privilege.ADMIN, SYSTEM)


def _body(token: AccessToken, now_us: int) -> TokenBody:
    return {
        "token_id": token.token_id,
        "owner": token.owner.name,
        "scope": scope_text(token.scope),
        "created_at": _at(token.created_us),
        "expires_at": _at(token.expires_us),
        "revoked_at": _time(token.revoked_us),
        "valid": token.is_valid(now_us),
    }


def _private(body: object, status: int = 200) -> Response:
    return JSONResponse(body, status, headers={"Cache-Control": "no-store"})


def _at(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / SECOND_US, UTC).isoformat(timespec="seconds")


def _time(time_us: int | None) -> str | None:
    return None if time_us is None else _at(time_us)
