"""Actions of pages on logins: sessions and tokens are listed and ended, statements on users are run.

As in ``app.console.actions``: each raises StatementError, and changes take the site, a name, who makes them and
why, and return what to tell that person.
"""

from __future__ import annotations

from typing import Any

from app.api import tokens as tokens_api
from app.console.actions import body
from app.console.fragments import utc
from app.console.shared import Site
from app.console.viewer import current_viewer, may_use, require
from app.security.policy import PageControl
from catalog.core.audit import Action
from catalog.core.errors import ErrorKind, RefusedError
from catalog.core.sessions import ConsoleSession
from parser.hidden_secrets import hide_secrets

Json = dict[str, Any]


async def tokens(site: Site, *, everybody: bool) -> list[Json]:
    """The viewer's own, or those of all users; the newest first. Empty where nobody has to log in."""
    if everybody:
        require(PageControl.MANAGE_USERS)
    if current_viewer() is None:
        return []
    listed: list[Json] = body(await tokens_api.list_tokens(site.services, everybody))["tokens"]
    return listed


async def sessions(site: Site, *, everybody: bool) -> list[Json]:
    """List the sessions that hold, as ``tokens``."""
    if everybody:
        require(PageControl.MANAGE_USERS)
    viewer = current_viewer()
    return [] if viewer is None else [_session(one, viewer.session) for one in await _listed(site, everybody)]


async def revoke_token(site: Site, token_id: str, by: str, reason: str) -> str:
    """Revoke a token; of another user's it needs ADMIN, which the API's function asks for."""
    require(PageControl.END_OWN_LOGIN)
    revoked = body(await tokens_api.revoke_token(token_id, site.services))
    return f"Token {token_id} of {revoked['owner']} is revoked."


async def end_session(site: Site, session_id: str, by: str, reason: str) -> str:
    require(PageControl.END_OWN_LOGIN)
    listed = await _listed(site, everybody=may_use(PageControl.MANAGE_USERS))
    session = next((one for one in listed if one.session_id == session_id), None)
    if session is None or site.services.sessions is None:
        raise RefusedError(ErrorKind.INVALID_REQUEST, f"there is no session {session_id}, or it has ended")
    await site.services.sessions.end_listed(session)
    await site.services.audit.record(Action.END_SESSION, session_id, {"owner": str(session.owner)})
    return f"Session {session_id} of {session.owner.name} is ended."


async def run_statement(site: Site, sql: str) -> str:
    """One statement on users, roles or grants."""
    require(PageControl.MANAGE_USERS)
    (result,) = await site.services.sql.run_script(sql)
    return hide_secrets(sql) if result.to_json()["applied"] else f"Nothing to change: {hide_secrets(sql)}"


async def _listed(site: Site, everybody: bool) -> tuple[ConsoleSession, ...]:
    viewer, view = current_viewer(), site.services.sessions
    if viewer is None or view is None:
        return ()
    return await view.listed(None if everybody else viewer.caller.principal)


def _session(session: ConsoleSession, own: str) -> Json:
    """``own``: the digest of the viewer's."""
    return {
        "session_id": session.session_id,
        "owner": session.owner.name,
        "created_at": utc(session.created_us),
        "used_at": utc(session.used_us),
        "ends_at": utc(session.ends_us),
        "is_own": session.digest == own,
    }
