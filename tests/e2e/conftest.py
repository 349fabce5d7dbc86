"""One installation for the tests that only use it, and fresh ones for those that kill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.installation import Installation


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Running, shared by a module: drop the zones that you create."""
    whole = Installation(tmp_path_factory.mktemp("up") / "data")
    whole.start()
    yield whole
    whole.stop()
