"""What Prometheus reads besides what is measured."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypedDict

from app.contract.marks import About


class ScrapeTarget(TypedDict):
    """One process, in the form of Prometheus's HTTP service discovery."""

    targets: Annotated[list[str], About("host and port; one")]
    labels: Annotated[
        dict[str, str], About("scheme and path of the address, and the name and role of the process")
    ]
