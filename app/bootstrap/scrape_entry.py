"""Composition of a process's entry in the metastore, and of the listener at which it is scraped."""

from __future__ import annotations

import platform
import socket
from pathlib import Path

from starlette.types import ASGIApp

from app.bootstrap.composition import ProcessFrame
from app.bootstrap.protection import certificate_of
from app.bootstrap.stores import entry_of
from app.configuration.settings import Settings
from app.edge.request_rules import HttpLimits
from app.edge.trust import Trust, is_every_address, url_of
from app.edge.uvicorn_server import listen, serve_http
from app.metrics.scrape_door import Admission, scrape_app
from app.process.logs import LogLevelFollower, set_levels
from app.security.protections import is_loopback
from app.security.token_secrets import ScrapeToken
from rebalance.core.keyspace.records import ProcessRole
from rebalance.hosting.background import Work
from rebalance.hosting.client_connections import ConnectionPlaces
from rebalance.hosting.tls import LoadedCertificate, loaded
from rebalance.metastore.mirror import KeyspaceMirror
from rebalance.metastore.registered_process import ProcessReport

LIMITS = HttpLimits(header_s=5.0)
CONNECTIONS_MAX = 8
"""Limit of connections from one address."""
ALL_CONNECTIONS_MAX = 64
TRUST = Trust(any_host=True)
"""Scrapers find a process by names of their own, and browsers have no business there."""


def scraped_url(scheme: str, host: str, port: int) -> str:
    """URL at which the process is scraped; one that listens on every address has the name of its machine in
    it."""
    return f"{url_of(scheme, platform.node() if is_every_address(host) else host, port)}/metrics"


async def open_process(
    frame: ProcessFrame, name: str, role: ProcessRole, directory: Path | None = None, needed_bytes: int = 0
) -> None:
    """Registers a node or a controller, opens its listener, and follows the log levels. ``directory`` and
    ``needed_bytes``: see ``ProcessReport``. Raises ValueError for an address that others reach without the
    certificates that it takes, and OSError for one that is taken."""
    settings, metastore, keyspace = frame.settings, frame.metastore, frame.keyspace
    levels = KeyspaceMirror(metastore, keyspace.log_levels)
    LogLevelFollower(levels, keyspace, set_levels)
    await frame.keep("log levels", levels.run)
    certificate = scraped_with(settings)
    listener = frame.stack.enter_context(listen(scrape_host(settings), settings.metrics_port))
    app = scrape_app(frame.metrics, admission_of(settings))
    await frame.keep("metrics", scraped_at(listener, app, certificate))
    scheme = "http" if certificate is None else "https"
    entry = entry_of(role, scraped_url(scheme, scrape_host(settings), listener.getsockname()[1]))
    shown = shown_by(settings, certificate)
    report = ProcessReport(metastore, keyspace, name, entry, frame.background, directory, needed_bytes, shown)
    await frame.keep("process", report.run)


def scraped_at(listener: socket.socket, app: ASGIApp, certificate: LoadedCertificate | None = None) -> Work:
    """Serves scrapers, over TLS with ``certificate``. The oldest connection of an address gives way to a new
    one, so that those on which nothing is sent or read keep no scraper out."""
    tls = certificate.server_context if certificate is not None else None
    places = ConnectionPlaces(CONNECTIONS_MAX, ALL_CONNECTIONS_MAX, newest_first=True)

    async def serve() -> None:
        # A copy: a task that is started again finds the socket open.
        await serve_http(app, listener.dup(), lambda: None, TRUST, LIMITS, tls, places)

    return serve


def shown_by(settings: Settings, certificate: LoadedCertificate | None) -> tuple[LoadedCertificate, ...]:
    """All that a process shows; ``certificate``: to those who come by HTTPS."""
    machine = loaded(settings.tls) if settings.tls is not None else None
    return tuple(known for known in (certificate, machine) if known is not None)


def admission_of(settings: Settings) -> Admission:
    """Rule by which a request is given the metrics: it has to show the token. Without a token in the settings,
    clients have shown a certificate, and all are admitted; on the loopback address, which every user of the
    machine reaches, all are admitted if no login is required, and otherwise none."""
    if settings.metrics_token_file is not None:
        return ScrapeToken(settings.metrics_token_file).is_in
    is_open = not settings.auth or not is_loopback(scrape_host(settings))
    return lambda _: is_open


def scrape_host(settings: Settings) -> str:
    """The address of the listener. By itself it is that of the node's members where TLS keeps strangers out."""
    if settings.metrics_host is not None:
        return settings.metrics_host
    return "127.0.0.1" if settings.tls is None else settings.node_host


def scraped_with(settings: Settings) -> LoadedCertificate | None:
    """The certificate that scrapers are shown, of HTTPS or else of TLS; None: none is needed, as the
    address is not reached from elsewhere. A scraper on another machine shows a certificate of
    ZONEKEEPER_TLS_CA: there is no other login. Raises ValueError."""
    host = scrape_host(settings)
    if is_loopback(host):
        return None
    certificate = certificate_of(settings, settings.tls_ca)
    if certificate is None and settings.tls is not None:
        certificate = loaded(settings.tls)
    if certificate is None or settings.tls_ca is None:
        raise ValueError(
            f"others reach {host}: to be scraped there it needs ZONEKEEPER_TLS_CA, whose certificates scrapers "
            "show, and ZONEKEEPER_TLS_CERTIFICATE and ZONEKEEPER_TLS_KEY, or ZONEKEEPER_HTTPS_CERTIFICATE and "
            "ZONEKEEPER_HTTPS_KEY"
        )
    return certificate
