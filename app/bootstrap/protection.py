"""Composition of the login: of a server on which users have to, and of the certificate that it shows."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Scope

from app.configuration.settings import Settings
from app.configuration.spark_settings import open_spark
from app.edge.trust import Trust, https_url
from app.security.access_view import AccessView
from app.security.authenticate import Authentication
from app.security.jwt import IssuerKeys, JwtChecks, JwtIssuer, fetch_keys
from app.security.login_check import LoginCheck
from app.security.passwords import PasswordChecks
from app.security.protections import missing_protections, open_links, require_links, require_protections
from app.security.session_view import SessionView
from app.security.standing import StandingWatch
from app.sql.engine.executor import CatalogExecutor
from rebalance.hosting.tls import LoadedCertificate

if TYPE_CHECKING:
    from app.bootstrap.composition import ProcessFrame


def access_of(catalog: CatalogExecutor) -> AccessView:
    return AccessView(catalog.grants, catalog, changes=lambda: catalog.principal_changes)


def with_login(
    app: ASGIApp,
    frame: ProcessFrame,
    sessions: SessionView,
    watch: StandingWatch | None,
    https_port: int | None,
) -> ASGIApp:
    settings, measures = frame.settings, frame.metrics
    passwords = PasswordChecks()
    frame.stack.callback(passwords.close)
    issuer = issuer_of(settings)
    jwts = None
    if issuer is not None:
        jwts = JwtChecks(issuer, IssuerKeys(partial(fetch_keys, issuer.keys_url)))
    check = LoginCheck(sessions.access, passwords, jwts, use_link=sessions.use_link, measures=measures)

    def secure_url(scope: Scope) -> str:
        return "" if https_port is None else https_url(settings.host, https_port, scope)

    return Authentication(app, check, sessions.access, secure_url, sessions, watch, measures)


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


def certificate_of(settings: Settings, authority: Path | None = None) -> LoadedCertificate | None:
    """Load the certificate of HTTPS; None: HTTPS is not set up. With ``authority``, clients have to show a
    certificate that it has signed. Raises ValueError."""
    files = settings.https_certificate, settings.https_key
    certificate, key = files
    if certificate is None or key is None:
        if any(files):
            raise ValueError("HTTPS needs both --tls-cert and --tls-key")
        return None
    return LoadedCertificate(certificate, key, authority)


def check_protections(settings: Settings, *, insecure: bool) -> tuple[str, ...]:
    """List the protections that are missing on the address of the API, if other machines reach it. Raises
    ValueError when some are missing and ``insecure`` is not set, and when no login could succeed."""
    has_tls = settings.https_certificate is not None
    if settings.auth and not has_tls and not settings.trusted_proxies:
        raise ValueError(
            "users log in over HTTPS only: give --tls-cert and --tls-key, or list the proxy that has the "
            "certificate in ZONEKEEPER_TRUSTED_PROXIES; with --no-auth every program on this machine has full "
            "access"
        )
    missing = missing_protections(has_login=settings.auth, has_tls=has_tls)
    return require_protections(settings.host, missing, insecure=insecure)


def check_links(settings: Settings, *, members: str = "", insecure: bool) -> tuple[str, ...]:
    """List what passes unencrypted between this process and other machines; ``members``: the address that its
    members listen on. Raises ValueError when something does and ``insecure`` is not set."""
    endpoints = (url.strip().rpartition("//")[2] for url in settings.metastore.split(","))
    hosts = {endpoint.rpartition(":")[0].strip("[]") for endpoint in endpoints if endpoint}
    links = open_links(
        members=members,
        has_tls=settings.tls is not None,
        metastore=hosts,
        has_metastore_tls=settings.metastore_tls,
    )
    return require_links(links, insecure=insecure)


def check_spark(settings: Settings, *, insecure: bool) -> tuple[str, ...]:
    """List what a Spark cluster lets strangers do. Raises ValueError when there is such a thing and
    ``insecure`` is not set."""
    return require_links(open_spark(settings), insecure=insecure)


def trust_of(settings: Settings, unprotected: tuple[str, ...]) -> Trust:
    """Return the trust that the settings define. If no login is required because only this machine reaches the
    API, requests that a proxy has forwarded are refused, unless proxies are listed as trusted. Raises
    ValueError."""
    is_local = not settings.auth and not unprotected and not settings.trusted_proxies
    return replace(settings.trust, refuses_forwarded=is_local)
