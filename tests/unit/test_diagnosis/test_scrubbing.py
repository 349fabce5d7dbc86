"""No form in which a secret is written outlives a scrubber, and the text around it does."""

from __future__ import annotations

import base64
import json

import pytest

from app.diagnosis.scrubbing import HIDDEN, Scrubber, secrets_in, without_literals

SECRET = "canary-Q7x/9 z"
PLAIN = "canaryQ7x9z"


@pytest.mark.parametrize(
    "text",
    [
        f"password={PLAIN}",
        f"ZONEKEEPER_TOKEN={PLAIN} next",
        f"PGPASSWORD: {PLAIN}",
        f'{{"api_key": "{PLAIN}", "zone": 4}}',
        f'{{"db_password":"{PLAIN}\\" {PLAIN}"}}',
        json.dumps({"event": json.dumps({"secret": PLAIN})}),
        f"Authorization: Bearer {PLAIN}",
        f"authorization='Basic {PLAIN}'",
        f"got bearer {PLAIN} from n1",
        f"Cookie: session={PLAIN}",
        f"postgresql+psycopg://u:{PLAIN}@db/zones",
        f"CREATE USER a PASSWORD '{PLAIN}'",
        f"CREATE USER a PASSWORD 'it''s {PLAIN}'",
        f"ALTER USER a IDENTIFIED BY '{PLAIN}",
        f"CREATE USER a PASSWORD {PLAIN}",
        f"ALTER USER a SET PASSWORD TO {PLAIN};",
        f"SET PASSWORD FOR a = '{PLAIN}'",
        f"SET PASSWORD FOR a = {PLAIN}",
        f"token zkt_{PLAIN}",
        f"link #zkl_{PLAIN}",
        f"eyJ{PLAIN}.e30.{PLAIN}",
        f"hash $argon2id$v=19$m=1${PLAIN}",
        f"-----BEGIN EC PRIVATE KEY-----\n{PLAIN}\n-----END EC PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{PLAIN}\n",
        f"{PLAIN}\n{PLAIN}\n-----END PRIVATE KEY-----\nzone",
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str) -> None:
    cleaned = Scrubber().clean(text)
    assert PLAIN not in cleaned
    assert HIDDEN in cleaned


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        "canary-Q7x%2F9%20z",
        base64.b64encode(SECRET.encode()).decode(),
        json.dumps(f"{SECRET}")[1:-1],
    ],
)
def test_a_known_secret_is_hidden_in_each_of_its_forms(form: str) -> None:
    assert Scrubber([SECRET]).clean(f"before {form} behind").startswith(f"before {HIDDEN}")
    assert Scrubber([SECRET]).clean(f"before {form} behind").endswith(" behind")


def test_what_is_beside_a_secret_stays() -> None:
    text = f'{{"zone": "ORDERS", "password": "{PLAIN}", "has_token": true, "partition": 7}}'
    cleaned = json.loads(Scrubber().clean(text))
    assert cleaned == {"zone": "ORDERS", "password": HIDDEN, "has_token": HIDDEN, "partition": 7}


@pytest.mark.parametrize(
    "text",
    [
        "zonekeeper/partition/17/3/assignments/stable,12,13,1,0,412\n",
        'etcd_server_quota_backend_bytes 4.294967296e+09\nrequests_total{route="/api/v1/zones"} 3\n',
        '{"event": "placed", "zone": 4, "at": "2026-05-17T09:30:00Z"}\n',
        "ALTER ZONE orders SET (REPLICAS 3)",
        "refused: the password is wrong, or the token has expired",
        "",
    ],
)
def test_what_holds_no_secret_stays_as_it_is(text: str) -> None:
    assert Scrubber([SECRET]).clean(text) == text


def test_a_long_text_of_one_word_is_read_in_its_length() -> None:
    """Backtracking over its square would take hours."""
    assert Scrubber().clean("password_" * 200_000) == "password_" * 200_000


def test_a_statement_has_no_string_left() -> None:
    assert without_literals("SELECT 'a', 'it''s' FROM t WHERE n = 3 AND x = 'open") == (
        "SELECT '…', '…' FROM t WHERE n = 3 AND x = '…'"
    )


def test_secrets_of_an_environment_are_known_by_the_names() -> None:
    environment = {
        "ZONEKEEPER_TOKEN": "one",
        "PGPASSWORD": "two",
        "AWS_SECRET_ACCESS_KEY": "three",
        "ZONEKEEPER_CATALOG_URL": "postgresql://u:fo%2Fur@db/zones",
        "ZONEKEEPER_TLS_KEY": "/etc/key.pem",
        "ZONEKEEPER_TOKEN_FILE": "/etc/token",
        "ZONEKEEPER_PORT": "7400",
        "EMPTY_PASSWORD": "",
    }
    assert secrets_in(environment) == {"one", "two", "three", "fo%2Fur", "fo/ur"}
