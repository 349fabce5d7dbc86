"""Keys and values of Zonekeeper's zones: ``ZoneClient`` (asynchronous) and ``BlockingZoneClient``.

The errors are drawn in ``zonekeeper_client.errors``.
"""

from zonekeeper_client.blocking import BlockingZoneClient
from zonekeeper_client.errors import (
    ClientError,
    ConditionFailedError,
    IncompatibleServerError,
    OperationAbandonedError,
    OutcomeUnknownError,
    ReadTimedOutError,
    RefusedByServerError,
    ServersUnavailableError,
    ZoneNotFoundError,
)
from zonekeeper_client.tls import TlsFiles
from zonekeeper_client.version import VERSION
from zonekeeper_client.zone_client import Found, Mode, Read, Stored, ZoneClient

__version__ = VERSION

__all__ = [
    "BlockingZoneClient",
    "ClientError",
    "ConditionFailedError",
    "Found",
    "IncompatibleServerError",
    "Mode",
    "OperationAbandonedError",
    "OutcomeUnknownError",
    "Read",
    "ReadTimedOutError",
    "RefusedByServerError",
    "ServersUnavailableError",
    "Stored",
    "TlsFiles",
    "ZoneClient",
    "ZoneNotFoundError",
    "__version__",
]
