"""The official Python and JDBC drivers with a password and with a token, over TLS."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trino
from sqlalchemy import create_engine, text
from trino.auth import BasicAuthentication, JWTAuthentication

from rebalance.core.keyspace.keys import Keyspace
from tests.fixtures.etcd_server import Etcd
from tests.fixtures.issuer import AUDIENCE, ISSUER, JwtIssuerServer, issuing
from tests.fixtures.jdbc_driver import QUICK_JVM, jdbc_driver
from tests.fixtures.secure_server import SecureServer, password_of, serving_securely

USER = "the-administrator"
PROBE = Path(__file__).parent / "JdbcLogin.java"
PROBE_S = 480

pytestmark = pytest.mark.timeout(1_200)


@pytest.fixture(scope="module")
def issuer() -> Iterator[JwtIssuerServer]:
    with issuing() as opened:
        yield opened


@pytest.fixture(scope="module")
def server(
    etcd_server: Etcd, issuer: JwtIssuerServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureServer]:
    directory: Path = tmp_path_factory.mktemp("drivers")
    settings = {
        "ZONEKEEPER_JWT_ISSUER": ISSUER,
        "ZONEKEEPER_JWT_AUDIENCE": AUDIENCE,
        "ZONEKEEPER_JWT_KEYS_URL": issuer.url,
        "ZONEKEEPER_JWT_ROLES": '{"zone-admins": "administrator"}',
    }
    url = f"sqlite:///{directory / 'catalog.sqlite'}"
    with serving_securely(directory, etcd_server, Keyspace("test-drivers/"), url, settings) as opened:
        yield opened


@pytest.fixture(scope="module")
def token(server: SecureServer) -> str:
    with server.client(USER) as client:
        secret: str = client.post("/api/v1/tokens", json={}).raise_for_status().json()["secret"]
    return secret


@pytest.fixture(autouse=True)
def _no_other_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove variables that come before a program's own authority in the Python driver's HTTP library."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


def answer(server: SecureServer, auth: Any, user: str = USER, sql: str = "SELECT 7 AS n") -> Any:
    """Rows that the Python driver gets."""
    place = {"host": "127.0.0.1", "port": server.https_port, "http_scheme": "https", "schema": "system"}
    with trino.dbapi.connect(**place, user=user, auth=auth, verify=str(server.ca_file)) as connection:
        return connection.cursor().execute(sql).fetchall()


def test_the_python_driver_with_a_password(server: SecureServer) -> None:
    assert answer(server, BasicAuthentication(USER, password_of(USER))) == [[7]]


def test_the_python_driver_with_a_token(server: SecureServer, token: str) -> None:
    """Send the token where the driver puts a JWT."""
    assert answer(server, JWTAuthentication(token)) == [[7]]


def test_sqlalchemy_with_a_token(server: SecureServer, token: str) -> None:
    named = {"http_scheme": "https", "auth": JWTAuthentication(token), "verify": str(server.ca_file)}
    url = f"trino://{USER}@127.0.0.1:{server.https_port}/zonekeeper/system"
    with create_engine(url, connect_args=named).connect() as connection:
        assert connection.execute(text("SELECT 7")).scalar() == 7


def test_the_python_driver_with_a_jwt(server: SecureServer, issuer: JwtIssuerServer) -> None:
    """Give the role that a claim names through the settings, and no other."""
    administrator, nobody = (issuer.token(groups=[name]) for name in ("zone-admins", "administrator"))
    assert [USER] in answer(server, JWTAuthentication(administrator), "anna", "SELECT user_name FROM users")
    assert answer(server, JWTAuthentication(nobody), "anna", "SELECT user_name FROM users") == []


def test_the_python_driver_that_proves_nothing(server: SecureServer) -> None:
    for auth in (None, BasicAuthentication(USER, "wrong"), JWTAuthentication("zkt_wrong")):
        with pytest.raises(trino.exceptions.HttpError, match="401"):
            answer(server, auth)
    viewer = BasicAuthentication("the-viewer", password_of("the-viewer"))
    with pytest.raises(trino.exceptions.HttpError, match="IMPERSONATE"):
        answer(server, viewer, "somebody-else")


@pytest.mark.thorough("test_jdbc has the driver, and others log in each way")
@pytest.mark.slow("a JVM that makes six connections")
def test_the_jdbc_driver(server: SecureServer, token: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    driver = jdbc_driver(tmp_path_factory)
    url = f"jdbc:trino://127.0.0.1:{server.https_port}/zonekeeper/system"
    tls = f"SSL=true SSLTrustStorePath={server.ca_file}"
    password = password_of(USER).replace(" ", "+")
    cases = {
        "password": (f"{tls} user={USER} password={password}", "answer 7"),
        "token": (f"{tls} user={USER} accessToken={token}", "answer 7"),
        "wrong password": (f"{tls} user={USER} password=wrong", "Authentication failed"),
        "wrong token": (f"{tls} user={USER} accessToken=zkt_wrong", "Authentication failed"),
        "another user": (f"{tls} user=the-viewer password={password}", "Authentication failed"),
        "no authority": (f"SSL=true user={USER} password={password}", "PKIX"),
    }
    arguments = [f"{url}|{properties}" for properties, _ in cases.values()]
    command = ["java", *QUICK_JVM, "-cp", str(driver), str(PROBE), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S)
    lines = done.stdout.splitlines()
    assert len(lines) == len(cases), done.stderr
    for (name, (_, expected)), line in zip(cases.items(), lines, strict=True):
        assert expected in line, (name, line)
