"""docker-compose.yml and the Dockerfile, as far as they can be checked without a Docker engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from app.cli.main import app
from app.configuration.settings import Settings

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
PINNED = re.compile(r"^[a-z0-9./-]+:v?\d+\.\d+(\.\d+)?(-[a-z0-9]+)*$")
RUNS_ONCE = {"migrate"}


def test_it_holds_what_production_has() -> None:
    commands = [service["command"][0] for service in OURS.values() if "entrypoint" not in service]
    assert sorted(commands) == ["controller"] * 2 + ["migrate"] + ["node"] * 3 + ["serve"] * 2
    images = [service["image"].rpartition(":")[0] for service in SERVICES.values()]
    assert images.count("quay.io/coreos/etcd") == 3
    assert images.count("postgres") == 1
    assert {"spark-master", "spark-worker"} <= OURS.keys()


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name: str) -> None:
    assert PINNED.match(SERVICES[name]["image"])


def test_the_base_image_is_pinned_and_nothing_runs_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert bases
    assert all(PINNED.match(base) for base in bases)
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users
    assert users[-1] not in {"root", "0"}


def test_the_dockerfile_copies_what_is_there() -> None:
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY "):
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), source


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in RUNS_ONCE])
def test_every_service_has_a_health_check(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] in {"CMD", "CMD-SHELL"}
    assert check["retries"] > 0


@pytest.mark.parametrize("name", SERVICES)
def test_services_wait_for_health_not_for_start(name: str) -> None:
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        wanted = "service_completed_successfully" if needed in RUNS_ONCE else "service_healthy"
        assert how["condition"] == wanted
        assert needed in SERVICES


@pytest.mark.parametrize("name", [name for name, service in OURS.items() if "entrypoint" not in service])
def test_every_command_exists(name: str) -> None:
    words: list[str] = OURS[name]["command"]
    command = typer.main.get_group(app).commands[words[0]]
    # Parsing alone: an unknown option, a missing value or a wrong number raises.
    with command.make_context(words[0], list(words[1:])) as context:
        assert context.params


@pytest.mark.parametrize("name", OURS)
def test_every_variable_exists_in_the_settings(name: str) -> None:
    service = OURS[name]
    known = {f"ZONEKEEPER_{field.upper()}" for field in Settings.model_fields}
    named = set(service.get("environment", {}))
    assert named <= known
    checked = re.findall(r"\$\$(\w+)", str(service.get("healthcheck", "")))
    assert set(checked) <= named


@pytest.mark.parametrize("name", ["node1", "node2", "node3"])
def test_a_node_keeps_its_address_and_its_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = OURS[name]
    for variable, value in service["environment"].items():
        monkeypatch.setenv(variable, str(value))
    settings = Settings()
    assert service["networks"]["zonekeeper"]["ipv4_address"] == settings.node_host
    assert settings.node_ports is not None
    first, last = map(int, settings.node_ports.split("-"))
    assert last - first + 1 == 2 * settings.node_member_limit
    assert service["volumes"] == [f"{name}:/var/lib/zonekeeper"]
