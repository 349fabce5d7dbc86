"""When certificates expire: of those that a process uses, and of the files that it would read next."""

from __future__ import annotations

from collections.abc import Callable

from rebalance.hosting.loaded_certificate import LoadedCertificate, ends_of
from rebalance.ports.measures import Measures
from rebalance.ports.metric_rows import Metric


def certificate_probe(name: str, certificate: LoadedCertificate, measures: Measures) -> Callable[[], None]:
    """The soonest end, of the certificate or of its authority."""

    def probe() -> None:
        in_force = [end.ends_s for end in certificate.ends()]
        in_files = [ends_s for ends_s in map(ends_of, certificate.files) if ends_s is not None]
        for source, ends in (("loaded", in_force), ("file", in_files)):
            if ends:
                measures.set(Metric.CERTIFICATE_EXPIRY, min(ends), name, source)

    return probe
