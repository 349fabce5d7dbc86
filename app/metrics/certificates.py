"""When certificates expire: of the one that a process uses, and of the file that it would read next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.security.server_certificate import ServerCertificate, expiry_of
from rebalance.core.metric_rows import Metric
from rebalance.ports.measures import Measures


def certificate_probe(
    name: str, file: Path, loaded: Callable[[], float | None], measures: Measures
) -> Callable[[], None]:
    """``loaded``: when the one in use expires, in seconds since 1970; None: not known."""

    def probe() -> None:
        for source, expiry_s in (("loaded", loaded()), ("file", expiry_of(file))):
            if expiry_s is not None:
                measures.set(Metric.CERTIFICATE_EXPIRY, expiry_s, name, source)

    return probe


def api_probe(certificate: ServerCertificate, measures: Measures) -> Callable[[], None]:
    """Of the API."""
    return certificate_probe("api", certificate.file, lambda: certificate.expiry_s, measures)


def machine_probe(file: Path, measures: Measures) -> Callable[[], None]:
    """Of the one that a process shows to the metastore, members and store servers: read when it started."""
    loaded = expiry_of(file)
    return certificate_probe("machine", file, lambda: loaded, measures)
