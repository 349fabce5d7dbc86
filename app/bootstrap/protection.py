"""Composition of the login: of a server on which users have to, and of the certificate that it shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from starlette.types import ASGIApp

from app.configuration.settings import Settings
from app.security.access_view import AccessView
from app.security.authenticate import Authentication
from app.security.jwt import IssuerKeys, JwtChecks, JwtIssuer, fetch_keys
from app.security.login_check import LoginCheck
from app.security.passwords import PasswordChecks
from app.security.protections import missing_protections, require_protections
from app.security.server_certificate import ServerCertificate
from app.sql.executor import CatalogExecutor
from catalog.core.authorisation import Grants


def access_of(catalog: CatalogExecutor) -> AccessView:
    async def grants() -> Grants:
        return (await catalog.snapshot()).grants

    return AccessView(grants, catalog)


def with_login(
    app: ASGIApp, settings: Settings, access: AccessView, https_url: Callable[[], str], stack: AsyncExitStack
) -> ASGIApp:
    passwords = PasswordChecks()
    stack.callback(passwords.close)
    issuer = issuer_of(settings)
    jwts = None
    if issuer is not None:
        jwts = JwtChecks(issuer, IssuerKeys(partial(fetch_keys, issuer.keys_url)))
    return Authentication(app, LoginCheck(access, passwords, jwts), access, https_url)


def issuer_of(settings: Settings) -> JwtIssuer | None:
    """None: JWTs are not accepted. Raises ValueError, naming the setting that is wrong."""
    given = (settings.jwt_issuer, settings.jwt_audience, settings.jwt_keys_url)
    if not any(given):
        return None
    try:
        roles = json.loads(settings.jwt_roles)
        is_mapping = isinstance(roles, dict) and all(isinstance(name, str) for name in roles.values())
    except ValueError:
        is_mapping = False
    if not is_mapping:
        raise ValueError('ZONEKEEPER_JWT_ROLES is a JSON object such as {"zone-operators": "operator"}')
    algorithms = tuple(part.strip() for part in settings.jwt_algorithms.split(",") if part.strip())
    issuer = JwtIssuer(*given, algorithms, settings.jwt_user_claim, settings.jwt_roles_claim, roles)
    issuer.check()
    return issuer


def certificate_of(settings: Settings) -> ServerCertificate | None:
    """None without TLS. Raises ValueError."""
    files = settings.https_certificate, settings.https_key
    certificate, key = files
    if certificate is None or key is None:
        if any(files):
            raise ValueError("HTTPS needs both --tls-cert and --tls-key")
        return None
    return ServerCertificate(certificate, key)


def check_protections(settings: Settings, *, insecure: bool) -> tuple[str, ...]:
    """What is missing on the address that others reach. Raises ValueError when something is and ``insecure`` is
    not said, and when no login could succeed."""
    has_tls = settings.https_certificate is not None
    if settings.auth and not has_tls and not settings.trusted_proxies:
        raise ValueError(
            "--auth needs TLS, as passwords and tokens are accepted over HTTPS only: give --tls-cert and "
            "--tls-key, or list the proxy that has the certificate in ZONEKEEPER_TRUSTED_PROXIES"
        )
    missing = missing_protections(has_login=settings.auth, has_tls=has_tls)
    return require_protections(settings.host, missing, insecure=insecure)
