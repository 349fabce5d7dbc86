"""docker-compose.yml and the Dockerfile, as far as they can be checked without a Docker engine."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import ssl
import stat
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sqlalchemy import make_url

from app.bootstrap.protection import certificate_of, check_protections
from app.cli.main import app
from app.configuration.settings import Settings
from spark.cluster_network import check_properties

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
"""Instructions of the Dockerfile, a line each."""
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
PINNED = re.compile(r"^[a-z0-9./-]+:v?\d+\.\d+(\.\d+)?(-[a-z0-9]+)*$")
RUNS_ONCE = {"migrate"}
HEALTH_OF = {"serve": "server", "controller": "controller", "node": "node"}
NETWORKS_OF = {
    "serve": {"front", "catalog", "metastore", "members"},
    "controller": {"metastore", "members", "spark"},
    "node": {"metastore", "members"},
    "migrate": {"catalog"},
}
NETWORKS_OF_OTHERS = {
    "prometheus": {"monitoring", "members"},
    "postgres": {"catalog"},
    "etcd": {"metastore"},
    "spark": {"spark"},
}
MONITORING = {"prometheus"}
"""Services of the profile of this name, which are not started without it."""
SPARK_VARIABLES = {"SPARK_LOCAL_IP"}
SECRET = "catalog-password"
OF_THE_API = ("api-certificate", "api-key")
OF_SPARK = "spark-properties"
SECRETS = (SECRET, *OF_THE_API, OF_SPARK, "metrics-token")


def test_it_holds_what_production_has() -> None:
    commands = [service["command"][0] for service in OURS.values() if "entrypoint" not in service]
    assert sorted(commands) == ["controller"] * 2 + ["migrate"] + ["node"] * 3 + ["serve"] * 2
    images = [service["image"].rpartition(":")[0] for service in SERVICES.values()]
    assert images.count("quay.io/coreos/etcd") == 3
    assert images.count("postgres") == 1
    assert {"spark-master", "spark-worker"} <= OURS.keys()


@pytest.mark.parametrize("name", SERVICES)
def test_logs_are_bounded(name: str) -> None:
    logging = SERVICES[name]["logging"]
    assert logging["driver"] == "json-file"
    assert {"max-size", "max-file"} <= logging["options"].keys()


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name: str) -> None:
    assert PINNED.match(SERVICES[name]["image"])


def test_the_base_image_is_pinned_and_nothing_runs_as_root() -> None:
    bases = [line.split()[1] for line in DOCKERFILE if line.startswith("FROM ")]
    assert bases
    assert all(PINNED.match(base) for base in bases)
    users = [line.split()[1] for line in DOCKERFILE if line.startswith("USER ")]
    assert users
    assert users[-1] not in {"root", "0"}


def test_the_dockerfile_copies_what_is_there() -> None:
    copied = [line.split()[1:-1] for line in DOCKERFILE if line.startswith("COPY ") and "--from=" not in line]
    sources = {source for line in copied for source in line}
    assert {"app", "requirements.lock", "scripts/shipped.py"} <= sources
    passed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    # What is not copied is not even given to the build: data, secrets, whatever else lies about.
    assert passed == sources
    for source in sources:
        assert (ROOT / source).exists(), source


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in RUNS_ONCE])
def test_every_service_has_a_health_check(name: str) -> None:
    """A program with its arguments, without a shell between; of our image it is ours."""
    check = SERVICES[name]["healthcheck"]
    how, program, *arguments = check["test"]
    assert how == "CMD"
    assert check["retries"] > 0
    if name not in OURS:
        return
    assert program == "zonectl"
    group: Any = typer.main.get_group(app).commands[arguments[0]]
    with group.commands[arguments[1]].make_context(arguments[1], arguments[2:]) as context:
        assert context.info_name in HEALTH_OF.get(SERVICES[name]["command"][0], "port")


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
    assert named <= (SPARK_VARIABLES if name.startswith("spark") else known)


@pytest.mark.parametrize("name", ["node1", "node2", "node3"])
def test_a_node_keeps_its_address_and_its_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = OURS[name]
    for variable, value in service["environment"].items():
        monkeypatch.setenv(variable, str(value))
    settings = Settings()
    assert service["networks"]["members"]["ipv4_address"] == settings.node_host
    assert settings.node_ports is not None
    first, last = map(int, settings.node_ports.split("-"))
    assert last - first + 1 == 2 * settings.node_member_limit
    assert service["volumes"] == [f"{name}:/var/lib/zonekeeper"]


def networks(service: dict[str, Any]) -> set[str]:
    return set(service["networks"])


@pytest.mark.parametrize("name", SERVICES)
def test_each_part_is_on_the_networks_that_it_needs(name: str) -> None:
    service = SERVICES[name]
    expected = NETWORKS_OF.get(service.get("command", [""])[0])
    if expected is None:
        (expected,) = (places for start, places in NETWORKS_OF_OTHERS.items() if name.startswith(start))
    assert networks(service) == expected


def test_only_the_api_is_published_and_on_this_machine_alone() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert {port.rpartition(":")[0] for name in MONITORING for port in published.pop(name)} == {
        "127.0.0.1:9090"
    }
    assert published.keys() == {"serve1", "serve2"}
    for ports in published.values():
        assert [port.rpartition(":")[0].rpartition(":")[0] for port in ports] == ["127.0.0.1"]
        assert [port.rpartition(":")[2] for port in ports] == ["7443"]
    assert not any({"network_mode", "expose"} & service.keys() for service in SERVICES.values())
    inside = {name for name, network in COMPOSE["networks"].items() if (network or {}).get("internal")}
    assert COMPOSE["networks"].keys() - inside == {"front", "monitoring"}
    assert {name for name, service in SERVICES.items() if "front" in networks(service)} == published.keys()


@pytest.mark.parametrize("name", SERVICES)
def test_a_process_can_change_nothing_but_its_data(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"cap_add", "privileged", "pid", "ipc", "devices"} & service.keys()
    own = {volume.partition(":")[0] for volume in service.get("volumes", [])}
    assert own <= COMPOSE["volumes"].keys()
    # Where nothing is mounted nothing can be written: a directory of its own each has.
    mounted = {place.partition(":")[0] for place in service.get("tmpfs", [])}
    mounted |= {volume.split(":")[1] for volume in service.get("volumes", [])}
    assert mounted & {"/var/lib/zonekeeper", "/var/lib/postgresql/data", "/var/lib/etcd", "/prometheus"}
    if name in OURS:
        assert {"/tmp", "/var/lib/zonekeeper"} <= mounted


def test_monitoring_is_optional_and_gets_the_certificate_without_its_key() -> None:
    assert {name for name, service in SERVICES.items() if "profiles" in service} == MONITORING
    assert SERVICES["prometheus"]["profiles"] == ["monitoring"]
    assert set(SERVICES["prometheus"]["secrets"]) == {"metrics-token", "api-certificate"}
    for config in COMPOSE["configs"].values():
        assert (ROOT / config["file"]).is_file()


def test_no_password_has_a_default_or_is_in_an_environment() -> None:
    """The password comes from a file that `make secrets` makes; without it nothing starts."""
    text = (ROOT / "docker-compose.yml").read_text()
    assert "${" not in text
    assert COMPOSE["secrets"] == {name: {"file": f"./secrets/{name}"} for name in SECRETS}
    holders = {name for name, service in SERVICES.items() if SECRET in service.get("secrets", [])}
    assert holders == {"postgres", "serve1", "serve2", "migrate"}
    servers = {
        name
        for name, service in SERVICES.items()
        if name not in MONITORING and {*OF_THE_API} & {*service.get("secrets", [])}
    }
    assert servers == {"serve1", "serve2"}
    drivers = {name for name, service in SERVICES.items() if OF_SPARK in service.get("secrets", [])}
    assert drivers == {"spark-master", "spark-worker", "controller1", "controller2"}
    for name in SERVICES:
        given = SERVICES[name].get("environment", {})
        secret = {variable for variable in given if re.search("PASSWORD|SECRET|TOKEN", variable)}
        secret -= {"ETCD_INITIAL_CLUSTER_TOKEN"}
        assert all(variable.endswith("_FILE") for variable in secret)
        assert {given[variable] for variable in secret} == (
            {f"/run/secrets/{SECRET}"} if name in holders else set()
        )
        assert make_url(given.get("ZONEKEEPER_CATALOG_URL", "sqlite://")).password is None


def test_secrets_are_made_once_for_the_owner(tmp_path: Path) -> None:
    """The owner alone can enter their folder; in it containers read them under users of their own."""
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "secrets.sh"
    shutil.copy(ROOT / "scripts" / "secrets.sh", script)
    folder = tmp_path / "secrets"
    made: list[dict[str, str]] = []
    for _ in range(2):
        done = subprocess.run([str(script)], capture_output=True, text=True, check=True, umask=0)
        made.append({file.name: file.read_text() for file in folder.iterdir()})
        assert not any(text.strip() in done.stdout + done.stderr for text in made[-1].values())
    assert done.stdout == ""
    assert made[0] == made[1]
    assert made[0].keys() == {SECRET, *OF_THE_API, OF_SPARK}
    assert len(made[0][SECRET].strip()) >= 43
    check_properties(folder / OF_SPARK)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o444}


def test_the_servers_options_let_nobody_in_without_a_login(tmp_path: Path) -> None:
    """The certificate that `make secrets` makes is one for this machine, and nothing accepts a risk."""
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(ROOT / "scripts" / "secrets.sh", tmp_path / "scripts")
    subprocess.run([script], capture_output=True, check=True)
    certificate, key = (tmp_path / "secrets" / name for name in OF_THE_API)
    words: list[str] = SERVICES["serve1"]["command"]
    given = dict(zip(words[1::2], words[2::2], strict=True))
    assert given.pop("--tls-cert") == f"/run/secrets/{certificate.name}"
    assert given.pop("--tls-key") == f"/run/secrets/{key.name}"
    assert given == {"--host": "0.0.0.0", "--port": "7400", "--https-port": "7443"}
    settings = Settings(host=given["--host"], https_certificate=certificate, https_key=key)
    assert check_protections(settings, insecure=False) == ()
    served = certificate_of(settings)
    assert served is not None
    trusting = ssl.create_default_context(cafile=certificate)
    for host in ("127.0.0.1", "localhost"):
        assert is_served(host, served.server_context(), trusting)


def is_served(host: str, server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    """Check that a client that asks for the host completes a handshake; raises ssl.SSLError otherwise."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    waiting = [*ends]
    for _ in range(10):
        for end in [*waiting]:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
                waiting.remove(end)
    return not waiting


def shipped(what: str) -> str:
    """Output of scripts/shipped.py, run by the interpreter alone, as in the image's build."""
    command = [sys.executable, "-I", "-S", str(ROOT / "scripts" / "shipped.py"), what]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_image_has_what_the_product_needs_and_nothing_of_its_tests() -> None:
    """Checked on the packages that are installed here: each of the product's dependencies, with theirs."""
    names = set(re.findall(r"^([a-z0-9-]+)==", shipped("requirements"), re.MULTILINE))
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    todo = [Requirement(text) for text in table["dependencies"]]
    done: set[str] = set()
    needed: set[str] = set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if str(requirement) in done:
            continue
        done.add(str(requirement))
        needed.add(name)
        extras = ["", *requirement.extras]
        for text in metadata.requires(name) or ():
            more = Requirement(text)
            if more.marker is None or any(more.marker.evaluate({"extra": extra}) for extra in extras):
                todo.append(more)
    assert len(needed) > 60
    assert needed <= names
    of_tests = {canonicalize_name(Requirement(text).name) for text in table["optional-dependencies"]["test"]}
    assert {"pytest", "playwright", "hypothesis", "trustme"} <= of_tests - needed
    assert not (of_tests - needed) & names
    (install,) = (line for line in DOCKERFILE if "pip install" in line and "-r " in line)
    assert "shipped.py requirements >shipped.txt" in install
    assert "--require-hashes -r shipped.txt" in install


def test_every_shipped_version_has_its_hashes() -> None:
    blocks = re.split(r"\n(?=[a-z0-9])", shipped("requirements"))
    assert all("--hash=sha256:" in block for block in blocks)
    locked = (ROOT / "requirements.lock").read_text()
    for block in blocks:
        assert block.splitlines()[0] in locked


def test_the_bill_of_materials_names_what_is_shipped() -> None:
    """CycloneDX: each version with its package URL and hashes, and what needs it; twice the same."""
    text = shipped("sbom")
    assert shipped("sbom") == text
    bill = json.loads(text)
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    own = bill["metadata"]["component"]
    assert (own["type"], own["name"], own["licenses"]) == (
        "application",
        "zonekeeper",
        [{"license": {"id": "Apache-2.0"}}],
    )
    components = {component["bom-ref"]: component for component in bill["components"]}
    versions = set(re.findall(r"^([a-z0-9-]+)==([^ \\]+)", shipped("requirements"), re.MULTILINE))
    assert {(each["name"], each["version"]) for each in components.values()} == versions
    for ref, component in components.items():
        assert ref == component["purl"] == f"pkg:pypi/{component['name']}@{component['version']}"
        hashes = [content for each in component["externalReferences"] for content in each["hashes"]]
        assert hashes
        assert all(each["alg"] == "SHA-256" and len(each["content"]) == 64 for each in hashes)
    needs = {each["ref"]: set(each["dependsOn"]) for each in bill["dependencies"]}
    assert needs.keys() == {*components, own["bom-ref"]}
    reached: set[str] = set()
    todo = [own["bom-ref"]]
    while todo:
        ref = todo.pop()
        todo += needs[ref] - reached
        reached |= needs[ref]
    assert reached == components.keys()
