"""Settings: environment (``ZONEKEEPER_*``) -> one value object. Command-line options override them."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.edge.request_rules import HttpLimits
from app.edge.trust import Trust
from app.sql.statements.statement_line import RUNNING_MAX, WAITING_MAX, LineLimits, statement_limits
from catalog.core.retention import KEPT_DAYS, Retention
from catalog.secret_files import with_password_file
from parser.text import NESTING_MAX, STATEMENTS_MAX, TEXT_BYTES_MAX, TOKENS_MAX, ScriptLimits
from rebalance.core.assignments.assignment import Strategy
from rebalance.groups.files.etcd_tuning import STRICT_STEPS
from rebalance.hosting.tls import TlsFiles

DEFAULT_DATA_DIR = Path("zonekeeper-data")
METASTORE_QUOTA_MB = 4_096
"""MiB: twice etcd's own default, half of what its authors call the most. ``up`` and ``docker-compose.yml`` give
it to etcd."""


class Settings(BaseSettings):
    """Settings of a process. Each field is an environment variable with the prefix ``ZONEKEEPER_``."""

    model_config = SettingsConfigDict(env_prefix="ZONEKEEPER_", extra="forbid")

    data_dir: Path = Field(DEFAULT_DATA_DIR, description="where `up` and `node` keep everything")
    catalog_url: str | None = Field(
        None, description="SQLAlchemy URL of the catalog; default: SQLite in the data directory"
    )
    catalog_password_file: Path | None = Field(
        None, description="file with the password of the catalog's URL, which then holds none"
    )
    catalog_history_days: int = Field(
        KEPT_DAYS, ge=0, description="how long earlier versions of the catalog can be read, days; 0: for ever"
    )
    audit_days: int = Field(KEPT_DAYS, ge=0, description="how long audit records are kept, days; 0: for ever")
    metastore: str = Field("127.0.0.1:2379", description="etcd endpoints, host:port, comma-separated")
    metastore_prefix: str = Field("zonekeeper/", description="prefix of every key in etcd; ends in a slash")
    etcd: Path | None = Field(
        None,
        description="etcd that `up` and `node` run; default: the one on PATH, else the bundled one",
    )
    metastore_timeout_s: float = Field(5.0, gt=0, description="time limit of one metastore call, seconds")

    tls_ca: Path | None = Field(
        None,
        description="PEM file of the authority that members of groups and their clients trust; with "
        "certificate and key: the members of this node's groups speak TLS, and so do their clients",
    )
    tls_certificate: Path | None = Field(None, description="PEM file: this machine's certificate")
    tls_key: Path | None = Field(None, description="PEM file: its key")
    metastore_tls: bool = Field(False, description="the metastore speaks TLS too, with the same files")

    metrics_host: str | None = Field(
        None,
        description="address at which a node or a controller is scraped; default: with ZONEKEEPER_TLS_CA that "
        "of ZONEKEEPER_NODE_HOST, else the loopback address. Others than the loopback address need "
        "ZONEKEEPER_TLS_CA, whose certificates scrapers show, and the certificate of HTTPS or of TLS",
    )
    metrics_port: int = Field(
        0, ge=0, le=65535, description="port at which a node or a controller is scraped; 0: a free one"
    )
    metrics_token_file: Path | None = Field(
        None,
        description="file with the token, of 32 characters or more, that scrapers send as a bearer token: it "
        "opens /metrics of servers, nodes and controllers, and nothing else; on the loopback address, nodes "
        "and controllers without it answer scrapers only with ZONEKEEPER_AUTH=false",
    )
    metrics_targets: Path | None = Field(
        None, description="file that a server keeps with what Prometheus scrapes, as its file_sd reads it"
    )

    host: str = Field("127.0.0.1", description="address that the API listens on")
    port: int = Field(0, ge=0, le=65535, description="port that the API listens on; 0: a free one")
    auth: bool = Field(True, description="users have to log in, over HTTPS; false: any client has full access")
    require_reason: bool = Field(
        False, description="refuse changes without a reason, but of logins: sessions, tokens and console links"
    )
    https_certificate: Path | None = Field(
        None,
        description="PEM file: the certificate of the API and those of its issuers; read again when it changes",
    )
    https_key: Path | None = Field(None, description="PEM file: its key")
    https_port: int = Field(
        0, ge=0, le=65535, description="port of HTTPS, in addition to that of HTTP; 0: a free one"
    )
    admin_token_file: Path | None = Field(
        None,
        description="file in which the server keeps a token of an administrator for commands on this machine; "
        "`up` sets it",
    )
    jwt_issuer: str = Field("", description="issuer (`iss`) whose JWTs are accepted; empty: none are")
    jwt_audience: str = Field("", description="audience (`aud`) that JWTs must name")
    jwt_keys_url: str = Field("", description="https address of the issuer's JSON Web Key Set")
    jwt_algorithms: str = Field("RS256,ES256,EdDSA", description="algorithms of JWTs, comma-separated")
    jwt_user_claim: str = Field("sub", description="claim that names the user")
    jwt_roles_claim: str = Field("groups", description="claim that lists the user's groups")
    jwt_roles: str = Field(
        "{}", description='JSON object from groups to roles, as {"zone-admins": "administrator"}'
    )
    console: bool = Field(True, description="serve the admin console at /console")
    url: str | None = Field(None, description="where clients find the API, for example http://127.0.0.1:7400")

    alert_webhook_url: str = Field(
        "",
        description="address to which alerts are posted in the format of Alertmanager's webhook; empty: none",
    )
    alert_webhook_secret_file: Path | None = Field(
        None, description="file with the secret that messages to the webhook are signed with (HMAC-SHA256)"
    )
    alert_times_divisor: float = Field(
        1.0, ge=1, description="divides how long conditions hold before their alerts fire; for trials of alerts"
    )

    allowed_hosts: str = Field(
        "",
        description="names that clients address this server by, comma-separated; IP addresses, localhost and "
        "the name that it listens on need not be listed",
    )
    allowed_origins: str = Field(
        "",
        description="origins of this server's pages in addition to its own address, comma-separated, "
        "as https://zones.example behind a proxy that is not trusted",
    )
    trusted_proxies: str = Field(
        "",
        description="IP addresses or networks of the proxies in front, comma-separated; only their "
        "X-Forwarded-* and identity headers are trusted",
    )
    http_body_bytes_max: int = Field(4 << 20, ge=1024, description="maximum size of a request's body, bytes")
    http_header_timeout_s: float = Field(10.0, gt=0, description="time limit of a request's headers, seconds")
    http_body_timeout_s: float = Field(30.0, gt=0, description="time limit of a request's body, seconds")
    http_idle_timeout_s: int = Field(15, ge=1, description="how long an idle connection is kept, seconds")
    http_connections_max: int = Field(
        100, ge=1, description="maximum connections from one address; those of trusted proxies are not counted"
    )
    identity_header: str = Field(
        "",
        description="request header in which a trusted proxy puts the authenticated name, as "
        "X-Forwarded-User; the proxy must remove it from what clients send. Empty: names come from the "
        "clients, unverified",
    )

    spark_master: str = Field("local[*]", description="Spark master URL")
    spark_properties_file: Path | None = Field(
        None,
        description="file of Spark's properties with the secret that master, workers and drivers of a cluster "
        "share; master and workers get it with --properties-file",
    )
    spark_driver_host: str = Field(
        "",
        description="address at which executors of a cluster reach this process's Spark driver, and the one "
        "that it listens on; default: that of the machine's name",
    )
    spark_driver_ports: str | None = Field(
        None,
        description="port range of this process's Spark driver on a cluster, first-last; two ports a driver; "
        "default: free ones",
    )
    spark_wait_s: float = Field(
        10.0, ge=0, description="how long placement waits for Spark before the same kernel runs locally"
    )

    default_partitions: int = Field(
        25, ge=1, le=65000, description="PARTITIONS of a zone that is created without the option"
    )
    rebalance_strategy: Strategy = Field(
        Strategy.QUEUE,
        description="what a new target does while a partition moves: queue (it waits), update (it replaces the "
        "running one until the new voters have caught up), cancel (the move is given up if no voter moved)",
    )
    controller_lease_s: int = Field(5, ge=2, description="lease of the leading controller, seconds")

    sql_bytes_max: int = Field(
        TEXT_BYTES_MAX, ge=1_024, description="maximum size of the SQL text of a request, bytes"
    )
    sql_statements_max: int = Field(
        STATEMENTS_MAX, ge=1, description="maximum number of statements in a script"
    )
    sql_tokens_max: int = Field(
        TOKENS_MAX, ge=100, description="maximum number of words, numbers and signs in a script"
    )
    sql_nesting_max: int = Field(
        NESTING_MAX,
        ge=1,
        description="maximum number of parentheses and brackets that are open at once in a statement",
    )
    sql_running_max: int = Field(RUNNING_MAX, ge=1, description="maximum number of statements that run at once")
    sql_waiting_max: int = Field(
        WAITING_MAX,
        ge=0,
        description="maximum number of statements that wait for their turn, three fifths of them from one "
        "address; the next "
        "one is refused with 503",
    )
    query_timeout_s: float = Field(10.0, gt=0, description="time limit of a query, seconds")
    query_rows_max: int = Field(100_000, ge=1, description="maximum number of rows of a query's result")

    up_server_silence_s: float = Field(
        20.0,
        ge=0,
        allow_inf_nan=False,
        description="silence after which `up` restarts a server, seconds; 0: never",
    )
    up_node_silence_s: float = Field(
        60.0,
        ge=0,
        allow_inf_nan=False,
        description="silence after which `up` restarts a node and its members, seconds; 0: never",
    )

    up_port_range: str | None = Field(
        None,
        description="ports that `up` chooses from for what it starts for the first time, first-last; none: all "
        "from 10240 up to those that the system takes for outgoing connections",
    )

    node_name: str | None = Field(None, description="name of this data node")
    node_attributes: str = Field("{}", description='JSON object of attributes, as {"region": "EU"}')
    node_profiles: str = Field(
        "default",
        description="storage profiles of this node, comma-separated; PROFILE=ENGINE names its engine",
    )
    node_host: str = Field("127.0.0.1", description="address that this node's members listen on")
    node_ports: str | None = Field(
        None,
        description="port range of this node, first-last: two ports a member, and the last one for its store "
        "server",
    )
    node_member_limit: int = Field(100, ge=1, description="maximum number of members and mirrors on this node")
    metastore_quota_mb: int = Field(
        METASTORE_QUOTA_MB,
        ge=0,
        description="size at which the metastore's etcd refuses writes (its --quota-backend-bytes), MiB; "
        "for metrics; 0: not known",
    )
    node_member_quota_mb: int = Field(
        1_024, ge=16, le=8_192, description="maximum size of one member's store, MiB"
    )
    node_weight: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="this node's share of balanced zones, against others' 1"
    )
    node_failure_domain: str = Field(
        "", description="rack, data centre...: balanced zones keep a partition's voters in different ones"
    )
    node_start_without_metastore: bool = Field(
        False, description="start members of STRONG_CONSISTENCY zones while the metastore is silent"
    )
    node_strict_steps: bool = Field(
        STRICT_STEPS,
        description="members check membership steps as etcd does, which takes up to 5 s a step; false: this "
        "node asks the members before each step instead",
    )
    node_trust_refusals: bool = Field(
        True,
        description="members of HIGH_AVAILABILITY zones run on while a majority of the metastore's members "
        "refuses connections or has no leader; false where proxies or firewalls answer for members",
    )
    node_lease_s: int = Field(5, ge=2, description="silence after which a node counts as down, seconds")
    store_ttl_s: int = Field(
        5,
        ge=3,
        description="silence after which a store server is out of the ring, seconds; it stops serving 1 s "
        "earlier",
    )

    @property
    def script_limits(self) -> ScriptLimits:
        return ScriptLimits(
            self.sql_bytes_max, self.sql_statements_max, self.sql_tokens_max, self.sql_nesting_max
        )

    @property
    def retention(self) -> Retention:
        return Retention(self.catalog_history_days, self.audit_days)

    @property
    def line_limits(self) -> LineLimits:
        return statement_limits(self.sql_running_max, self.sql_waiting_max)

    @property
    def tls(self) -> TlsFiles | None:
        """None without TLS. Raises ValueError when a file is missing, or one of the three settings."""
        given = (self.tls_ca, self.tls_certificate, self.tls_key)
        ca, certificate, key = given
        if ca is None or certificate is None or key is None:
            if any(given) or self.metastore_tls:
                raise ValueError(
                    "TLS needs all of ZONEKEEPER_TLS_CA, ZONEKEEPER_TLS_CERTIFICATE, ZONEKEEPER_TLS_KEY"
                )
            return None
        files = TlsFiles(ca, certificate, key)
        files.check()
        return files

    @property
    def trust(self) -> Trust:
        """Raises ValueError, naming the part of a list that is wrong."""
        own = self.host if any(letter.isalpha() for letter in self.host) and ":" not in self.host else ""
        return Trust.parse(
            f"{self.allowed_hosts},{own}", self.allowed_origins, self.trusted_proxies, self.identity_header
        )

    @property
    def http_limits(self) -> HttpLimits:
        return HttpLimits(
            self.http_body_bytes_max,
            self.http_header_timeout_s,
            self.http_body_timeout_s,
            self.http_idle_timeout_s,
            self.http_connections_max,
        )

    @property
    def catalog(self) -> str:
        """The catalog's URL with its default, and with the file of its password, which is read for each
        connection. Raises ValueError, naming the file."""
        url = self.catalog_url or f"sqlite:///{(self.data_dir / 'catalog.sqlite').absolute()}"
        if self.catalog_password_file is None:
            return url
        return with_password_file(url, self.catalog_password_file)


def port_range(text: str, whose: str, example: str) -> range:
    """Parse a range of ports FIRST-LAST. Raises ValueError, saying what would be accepted."""
    match = re.fullmatch(r"(\d+)-(\d+)", text)
    if match is None:
        raise ValueError(f"give {whose} ports as FIRST-LAST, for example {example}")
    first, last = int(match[1]), int(match[2])
    if not 1024 <= first < last <= 65535:
        raise ValueError(f"ports {first}-{last}: FIRST is below LAST, both from 1024 to 65535")
    return range(first, last + 1)
