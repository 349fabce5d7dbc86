"""Errors between simulated servers, clients and the controller.

StealingError
+- NodeDownError          no answer, or the answer got lost with the node
+- InvalidMetadataError   the node does not own the partition (VOL-076)
+- OrderRefusedError      a server does not do what a controller asked for, with a code
+- InjectedError          a fault that a test or a seed put there
+- UnitFailedError        a unit of migration has used up its attempts or its time
+- NotServedError         a client has tried long enough
"""

from __future__ import annotations


class StealingError(Exception):
    pass


class NodeDownError(StealingError):
    pass


class InvalidMetadataError(StealingError):
    pass


class OrderRefusedError(StealingError):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class InjectedError(StealingError):
    pass


class UnitFailedError(StealingError):
    pass


class NotServedError(StealingError):
    pass
