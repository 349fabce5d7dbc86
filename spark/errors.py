"""Errors of this package.

::

    PlacementError            a request that no engine can place; names the zone (of the port)
    SparkUnavailableError     not raised to callers of an engine: the kernel runs locally instead
    +-- DriverLostError       the driver ended, or went silent, while a request was with it
    +-- SparkStalledError     the driver lives but its cluster gives it no executor
    +-- JobFailedError        the Spark job failed for a reason that is not a zone's
    SessionError              in the driver: Spark cannot be started; the message says what would help
    +-- JavaMissingError
"""

from __future__ import annotations


class SparkUnavailableError(RuntimeError):
    """Spark gave no result; the same request may be right elsewhere or later."""


class DriverLostError(SparkUnavailableError):
    """The driver ended or went silent while a request was with it."""


class SparkStalledError(SparkUnavailableError):
    """Error where not one task ran for the time that a placement waits for Spark."""


class JobFailedError(SparkUnavailableError):
    """The job failed on the cluster."""


class SessionError(RuntimeError):
    """Spark cannot be started on this machine; the message names what to do."""


class JavaMissingError(SessionError):
    """Error where there is no Java that this Spark runs on."""
