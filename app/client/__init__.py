"""The former place of the client, which is a distribution of its own now. To go with the next release."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from typing import Any

try:
    import zonekeeper_client
except ModuleNotFoundError as error:
    if error.name != "zonekeeper_client":
        raise
    how = "pip install zonekeeper-client, or zonekeeper-client[direct] for Mode.DIRECT"
    raise ModuleNotFoundError(f"app.client is zonekeeper_client now: {how}", name=error.name) from error

__all__ = zonekeeper_client.__all__
warnings.warn(
    "app.client is zonekeeper_client now, and goes with the next release", DeprecationWarning, stacklevel=2
)
for _name in ("blocking", "errors", "zone_client"):
    # Modules that programs have named.
    sys.modules[f"{__name__}.{_name}"] = import_module(f"zonekeeper_client.{_name}")


def __getattr__(name: str) -> Any:
    return getattr(zonekeeper_client, name)
