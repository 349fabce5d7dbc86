"""Network of a Spark cluster: how driver, master and executors reach each other, and what keeps strangers out
of them.

Whoever reaches a master, a worker or a driver of a cluster without authentication runs code there. So all of
them have one file of Spark's properties: it holds the secret that they share, and is given to master and
workers with ``--properties-file``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

SECRET = "spark.authenticate.secret"
SECRET_LENGTH_MIN = 32
ENDS = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
}
"""Properties of every process: one that lacks the secret is refused, and what is sent is encrypted with it."""
SHARED = {**ENDS, "spark.master.rest.enabled": "false"}
"""The submission of applications over REST knows no login."""
FILE_BYTES_MAX = 1 << 16
MASTER = "spark://"


@dataclass(frozen=True, slots=True)
class SparkNetwork:
    """``properties``: the file that all ends share; None: they ask for no secret. ``host``: at which executors
    reach this driver; empty: at the address of its machine's name. ``ports``: its own, at least two; None:
    free ones."""

    properties: Path | None = None
    host: str = ""
    ports: range | None = None


def is_local(master: str) -> bool:
    return master.startswith("local")


def master_hosts(master: str) -> frozenset[str]:
    """Return the hosts of Spark's own masters. Others (yarn, k8s) make a secret for each application
    themselves."""
    if not master.startswith(MASTER):
        return frozenset()
    addresses = master.removeprefix(MASTER).split(",")
    return frozenset(address.rpartition(":")[0].strip("[] ") or address.strip() for address in addresses)


def network_settings(master: str, network: SparkNetwork) -> dict[str, str]:
    """Return the settings of the driver, beside what the file of properties says."""
    if is_local(master):
        # Its ports are open to everybody on the machine: who lacks the secret that the JVM makes is refused.
        return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", **ENDS}
    settings = {} if master_hosts(master) and network.properties is None else dict(ENDS)
    if network.host:
        settings |= {"spark.driver.host": network.host, "spark.driver.bindAddress": network.host}
    if network.ports is not None:
        half = len(network.ports) // 2
        settings |= {
            "spark.driver.port": str(network.ports[0]),
            "spark.driver.blockManager.port": str(network.ports[half]),
            # Of a port that is taken Spark tries the next one, so often.
            "spark.port.maxRetries": str(half - 1),
        }
    return settings


def check_properties(path: Path) -> None:
    """Raises ValueError, naming the file and what it lacks."""
    try:
        with path.open("rb") as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
        text = content.decode()
    except OSError as error:
        raise ValueError(f"Spark's properties {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"Spark's properties {path}: not UTF-8") from error
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"Spark's properties {path}: at most {FILE_BYTES_MAX} bytes are accepted")
    given = dict(re.findall(r"^[ \t]*(spark\.[\w.]+)[ \t]*[=: \t][ \t]*(.*?)[ \t\r]*$", text, re.M))
    lacking = [f"{name} {value}" for name, value in SHARED.items() if given.get(name) != value]
    if len(given.get(SECRET, "")) < SECRET_LENGTH_MIN:
        lacking.append(f"{SECRET} of {SECRET_LENGTH_MIN} characters or more")
    if lacking:
        raise ValueError(f"Spark's properties {path}: add {', '.join(lacking)}")
