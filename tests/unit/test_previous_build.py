"""Origin of the previous release."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.fixtures.previous_build import COMMIT_FILE, missing_history, previous_commit


def test_the_previous_release_is_one_commit() -> None:
    assert re.fullmatch(r"[0-9a-f]{40}\n", COMMIT_FILE.read_text())


def test_a_checkout_without_its_history_says_how_to_get_it(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    reason = missing_history(tmp_path)
    assert previous_commit() in reason
    assert "fetch-depth: 0" in reason


def test_a_folder_without_git_says_the_same(tmp_path: Path) -> None:
    assert "fetch-depth: 0" in missing_history(tmp_path)
