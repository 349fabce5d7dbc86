"""Documents that newcomers read, and pipelines that forges run, name what the repository has."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.process.build import own_version
from zonekeeper_client.version import VERSION as CLIENT_VERSION

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
QUOTED = tuple(dict.fromkeys(re.findall(r"`([^`\n]+)`", CONTRIBUTING)))
PATHS = [
    text for text in QUOTED if re.fullmatch(r"[\w.-]+(?:/[\w.-]+)*\.(?:py|md|csv|tsv|txt|jsonl|toml|yml)", text)
]
PATHS += [
    text for text in QUOTED if re.fullmatch(r"(?:app|tests|parser|catalog|rebalance)(?:/[\w-]+)*/?", text)
]
NAMES = [text for text in QUOTED if re.fullmatch(r"(?:app|parser|catalog|rebalance)(?:\.\w+)+", text)]


@pytest.mark.parametrize("path", PATHS)
def test_contributing_names_paths_that_exist(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("name", NAMES)
def test_contributing_names_modules_and_classes_that_exist(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    if not attribute[0].isupper():
        importlib.import_module(name)
    else:
        assert hasattr(importlib.import_module(module), attribute)


def test_contributing_was_read() -> None:
    assert len(PATHS) > 30
    assert len(NAMES) > 3


def test_the_version_is_the_same_everywhere() -> None:
    version = PROJECT["version"]
    assert own_version() == CLIENT_VERSION == version, "`make setup` installs it"
    assert f"image: zonekeeper:{version}\n" in (ROOT / "docker-compose.yml").read_text()
    releases = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert releases[:2] == ["Unreleased", version]


def test_the_license_is_apache_2() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert re.search(r"^   Copyright \d{4} The Zonekeeper authors$", text, re.M)
    assert "LICENSE" in (ROOT / "Dockerfile").read_text()


def targets_of(text: str) -> set[str]:
    return set(re.findall(r"\bmake (\w+)", text))


def test_the_forge_runs_what_every_change_must_pass() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    commands = "\n".join(step.get("run", "") for step in steps)
    assert targets_of(commands) >= targets_of((ROOT / ".ci" / "run").read_text())
    for job in workflow["jobs"].values():
        chosen = [step.get("with", {}) for step in job["steps"]]
        assert {"python-version": "3.11"} in chosen
        assert {"distribution": "temurin", "java-version": "17"} in chosen


def test_commits_are_checked_by_what_make_lint_runs() -> None:
    lint = (ROOT / "Makefile").read_text()
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repository["repo"] for repository in hooks] == ["local"]
    for hook in hooks[0]["hooks"]:
        command = hook["entry"].removesuffix(" --force-exclude").replace(".venv/bin/", "$(BIN)/")
        assert f"\t{command}" in lint, hook["entry"]
