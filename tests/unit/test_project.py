"""Promises of the project about itself: layers, lock, scripts."""

from __future__ import annotations

import itertools
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CLIENT = ROOT / "clients" / "python"


def locked() -> dict[str, str]:
    text = (ROOT / "requirements.lock").read_text()
    return {canonicalize_name(n): v for n, v in re.findall(r"^([A-Za-z0-9._-]+)(?:\[.*\])?==(\S+)", text, re.M)}


def test_the_lock_satisfies_the_project() -> None:
    client = tomllib.loads((CLIENT / "pyproject.toml").read_text())
    wanted = [
        *client["project"]["dependencies"],
        *client["project"]["optional-dependencies"]["direct"],
        *client["build-system"]["requires"],
        *PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"]["test"],
        *PROJECT["build-system"]["requires"],
    ]
    versions = locked()
    for requirement in map(Requirement, wanted):
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} but the lock has {version}: make lock"


def test_the_lock_names_hashes_and_no_place() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    for line, following in itertools.pairwise(lines):
        if "==" in line and not line.lstrip().startswith("#"):
            assert line.endswith("\\"), line
            assert following.strip().startswith("--hash=sha256:")
    assert not [line for line in lines if re.search(r"://|index.url|find.links", line)]


@pytest.mark.parametrize("script", sorted([*(ROOT / "scripts").glob("*.sh"), ROOT / ".ci" / "run"]), ids=str)
def test_scripts_stop_at_the_first_error(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    assert "set -euo pipefail" in script.read_text()
    subprocess.run(["bash", "-n", script], check=True)


def test_make_lists_its_targets() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("setup", "run", "demo", "test", "soak", "bench", "lint", "format", "screenshots", "clean"):
        assert re.search(rf"^  make {target} +\S", done.stdout, re.M), target


def test_packages_that_travel_to_executors_have_empty_inits() -> None:
    for package in ("rebalance", "rebalance/kernels", "rebalance/core", "spark"):
        assert (ROOT / package / "__init__.py").read_text() == ""


def test_an_installed_package_has_the_quickstart() -> None:
    assert PROJECT["tool"]["setuptools"]["package-data"]["app.cli"] == ["quickstart.sql"]
    installed = ROOT / "app" / "cli" / "quickstart.sql"
    assert installed.read_text() == (ROOT / "examples" / "quickstart.sql").read_text()


def test_the_readme_says_how_etcds_own_members_are_changed() -> None:
    """I3-058: not done by our own flow; the way is etcdctl's, one member at a time, and it is written down."""
    section = (ROOT / "README.md").read_text().split("### Members of etcd itself")[1].split("\n## ")[0]
    assert "does not change the membership" in section
    for command in ("member add", "--learner", "member promote", "member remove", "--metastore"):
        assert command in section, command
