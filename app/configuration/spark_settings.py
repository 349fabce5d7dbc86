"""Network settings of this process's Spark driver."""

from __future__ import annotations

from app.configuration.settings import Settings, port_range
from app.security.protections import leaving
from spark.cluster_network import SparkNetwork, check_properties, master_hosts

NO_SECRET = (
    "no secret of Spark's: whoever reaches master, workers or driver runs programs there "
    "(ZONEKEEPER_SPARK_PROPERTIES_FILE)"
)


def spark_network(settings: Settings) -> SparkNetwork:
    """Raises ValueError, naming the setting or the file that is wrong."""
    ports = None
    if settings.spark_driver_ports is not None:
        ports = port_range(settings.spark_driver_ports, "the Spark driver's", "7100-7101")
    hosts = master_hosts(settings.spark_master)
    if hosts and settings.spark_properties_file is not None:
        check_properties(settings.spark_properties_file)
    # A master that only this machine reaches has its executors here.
    is_here = hosts and not leaving(dict.fromkeys(hosts, ""))
    host = settings.spark_driver_host or ("127.0.0.1" if is_here else "")
    return SparkNetwork(settings.spark_properties_file, host, ports)


def open_spark(settings: Settings) -> dict[str, str]:
    """List what strangers may do, by the host of a master that asks for no secret. Raises ValueError."""
    if spark_network(settings).properties is not None:
        return {}
    return dict.fromkeys(master_hosts(settings.spark_master), NO_SECRET)
