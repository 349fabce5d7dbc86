"""``zonectl up``: everything on one machine, restarted when it dies, gone when this process is. The link that
opens the console logged in is made by the server, for a holder of the token of ``up``."""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from app.security.local_authority import LocalAuthority
from app.security.token_secrets import keep_scrape_token
from app.supervision.child_loop import Child, Supervisor
from app.supervision.child_plan import DEMO_INHERITS, ChildSpec, StopRank, UpOptions, plan_children, zonectl
from app.supervision.installation_state import (
    Addresses,
    DataDirectory,
    LocalLogin,
    LoginRule,
    Ports,
    choose_etcd,
    choose_login,
    choose_ports,
    load_ports,
    save_state,
)
from app.supervision.privacy import keep_private
from catalog.core.level import BELOW_LEVEL_CODE
from rebalance.groups.files.reservations import without_tls
from rebalance.hosting.etcd_binary import dotted, remember
from rebalance.hosting.heartbeat import age_of_this_process_s, dump_on_signal
from rebalance.hosting.tls import TlsFiles

TIME_LIMIT_S = 2.0
PATH = "/api/v1/console-links"


def new_console_link(url: str, login: LocalLogin) -> str:
    """Make a console link of the API at ``url``, whose certificate is checked; empty: the API gives none.
    Raises OSError while the API does not answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPSConnection(
        parts.hostname or "",
        parts.port,
        timeout=TIME_LIMIT_S,
        context=ssl.create_default_context(cafile=str(login.authority)),
    )
    headers = {
        "Authorization": f"Bearer {login.token_file.read_text().strip()}",
        "Content-Type": "application/json",
    }
    try:
        connection.request("POST", PATH, b"{}", headers)
        answer = connection.getresponse()
        return f"{url}{json.load(answer)['path']}" if answer.status == http.HTTPStatus.CREATED else ""
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


PROBE_TIMEOUT_S = 0.5
SLOW_START_S = 30.0
INTERRUPTED = 130
LINK_WAIT_S = 10.0
RENEWAL_LOOK_S = 6 * 3_600.0


def say(line: str) -> None:
    """Progress for people. A terminal that went away must not keep the children from being stopped."""
    with suppress(OSError):
        print(line, flush=True)


def up(options: UpOptions) -> int:
    """Runs until a signal or the demo's end; the exit code. Raises UpError when it cannot start."""
    dump_on_signal()
    for failure in keep_private(options.settings.data_dir):
        say(f"warning: others can read {failure}")
    with DataDirectory(options.settings.data_dir) as directory:
        earlier = load_ports(directory.path)
        rule = choose_login(directory.path, options.auth, options.settings.host)
        etcd = choose_etcd(directory.path, options.settings.etcd)
        if etcd.warning:
            say(f"warning: {etcd.warning}")
        ports = choose_ports(
            earlier,
            [node.name for node in options.nodes],
            host=options.settings.host,
            api_port=options.settings.port,
            https_port=options.settings.https_port if rule.is_required else None,
            member_limit=options.settings.node_member_limit,
            within=options.ports,
        )
        save_state(directory.path, ports, has_login=rule.is_required)
        tls = options.settings.tls or LocalAuthority.of_machines(directory.path).renewed(datetime.now(UTC))
        https = LocalAuthority.of_api(directory.path).renewed(datetime.now(UTC)) if rule.is_required else None
        login = None if https is None else LocalLogin.of(directory.path, https.ca)
        if login is not None:
            keep_scrape_token(login.scrape_token_file)
        remember(directory.path, etcd)
        _say_what_differs(earlier, ports, options)
        _say_who_logs_in(rule)
        _warn_of_plain_members(directory.path / "nodes")
        children = plan_children(
            directory.path,
            ports,
            options,
            etcd=etcd.path,
            tls=tls,
            https=https,
            login=login,
        )
        names = ", ".join(node.name for node in options.nodes)
        say(f"starting etcd {dotted(etcd.version)}, the server and {names} in {directory.path}")
        return _Run(options, directory, _addresses(ports, options, tls, login), ports.api, children).run()


@dataclass(eq=False)
class _Run:
    """One run: watches for the API's first answer, then for the demo's end."""

    options: UpOptions
    directory: DataDirectory
    addresses: Addresses
    port: int
    children: Sequence[ChildSpec]

    def __post_init__(self) -> None:
        self._started = time.monotonic() - age_of_this_process_s()
        self._served = False
        self._link_until = 0.0
        self._renewed = time.monotonic()
        self._slow_reported = False
        self._demo: Child | None = None
        self._exit_code = 0
        self._supervisor = Supervisor(self.children, say, self._on_change, self._watch, {BELOW_LEVEL_CODE})

    def run(self) -> int:
        ended_by = self._supervisor.run()
        say("stopped" if ended_by is None else f"stopped ({ended_by.name})")
        if ended_by is signal.SIGINT:
            return INTERRUPTED
        if ended_by is not None and self.options.leave_after_demo:
            return 128 + ended_by
        return self._supervisor.final_code or self._exit_code

    def _on_change(self, pids: Mapping[str, int]) -> None:
        self.directory.write_run(self.addresses, pids)

    def _watch(self) -> None:
        self._renew_certificate()
        if not self._served:
            self._watch_for_api()
        elif time.monotonic() < self._link_until:
            self._say_link()
        elif self._demo is not None and self._demo.exit_code is not None:
            self._on_demo_end(self._demo.exit_code)

    def _watch_for_api(self) -> None:
        seconds = time.monotonic() - self._started
        if answers(self.options.probe_host, self.port):
            self._served = True
            say(f"API at {self.addresses.api} after {seconds:.1f} s")
            if self.options.demo:
                command = zonectl("demo", "--url", self.addresses.api, "--data-dir", str(self.directory.path))
                spec = ChildSpec("demo", command, StopRank.CLIENT, None, DEMO_INHERITS)
                self._demo = self._supervisor.add(spec)
            else:
                self._say_addresses()
            # Other output than a terminal's is kept, as a log or a recording, where others would read the link.
            has_console = self.addresses.login is not None and self.options.settings.console
            is_shown = has_console and sys.stdout.isatty()
            self._link_until = time.monotonic() + LINK_WAIT_S if is_shown else 0.0
        elif seconds > SLOW_START_S and not self._slow_reported:
            self._slow_reported = True
            say(f"no API after {seconds:.0f} s: see {self.directory.path / 'logs'}")

    def _say_link(self) -> None:
        """HTTPS is served a moment after HTTP."""
        assert self.addresses.login is not None, "offered with a login only"
        try:
            link = new_console_link(self.addresses.api, self.addresses.login)
        except OSError:
            return
        self._link_until = 0.0
        if link:
            say(f"open the console, within 5 minutes and once: {link}")

    def _renew_certificate(self) -> None:
        """A run may be longer than the certificate of the API is valid; the server reads it again."""
        now = time.monotonic()
        if self.addresses.login is not None and now - self._renewed > RENEWAL_LOOK_S:
            self._renewed = now
            try:
                LocalAuthority.of_api(self.directory.path).renewed(datetime.now(UTC))
            except OSError as error:
                say(f"warning: the certificate of the API is not renewed: {error}")

    def _on_demo_end(self, code: int) -> None:
        self._demo = None
        self._exit_code = code if code >= 0 else 128 - code
        if self.options.leave_after_demo:
            self._supervisor.stop()
        else:
            outcome = "" if code == 0 else f"the demo failed (exit code {code}); "
            say(f"{outcome}still serving at {self.addresses.api}")
            self._say_addresses()

    def _say_addresses(self) -> None:
        for line in self.addresses.lines(self.options.settings.data_dir):
            say(line)
        say("Ctrl-C stops everything")


def answers(host: str, port: int) -> bool:
    """True when the API's /livez says 200, which needs no login and no TLS."""
    connection = http.client.HTTPConnection(host, port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _addresses(ports: Ports, options: UpOptions, tls: TlsFiles, login: LocalLogin | None) -> Addresses:
    http, https = (f"{options.probe_host}:{port}" for port in (ports.api, ports.https))
    url = f"http://{http}" if login is None else f"https://{https}"
    blocks = {node.name: ports.nodes[node.name] for node in options.nodes}
    return Addresses(
        api=url,
        console=f"{url}/console" if options.settings.console else "",
        etcd=f"127.0.0.1:{ports.etcd_client}",
        nodes={name: f"127.0.0.1:{block.start}-{block.stop - 1}" for name, block in blocks.items()},
        spark=options.settings.spark_master,
        tls=tls,
        login=login,
        health="" if login is None else f"http://{http}/livez",
    )


def _say_what_differs(earlier: Ports | None, ports: Ports, options: UpOptions) -> None:
    if earlier is None:
        return
    idle = sorted(set(earlier.nodes) - {node.name for node in options.nodes})
    if idle:
        say(f"not started, though an earlier run had them: {', '.join(idle)}; what they hold waits for them")
    if not options.settings.port and ports.api != earlier.api:
        say(f"port {earlier.api} of the earlier run is taken: the API moves to {ports.api}")


def _say_who_logs_in(rule: LoginRule) -> None:
    if not rule.is_required:
        say("warning: nobody has to log in (--no-auth): every user of this machine may do everything")
    elif rule.is_new:
        say(
            "users have to log in from now on; you do not: commands of yours on this machine are those of the "
            "administrator `admin`"
        )


def _warn_of_plain_members(nodes: Path) -> None:
    """An address is in its group's membership: what an earlier release began without TLS goes on without."""
    counts = {node.name: without_tls(node) for node in sorted(nodes.glob("*"))}
    plain = ", ".join(f"{name} ({count})" for name, count in counts.items() if count)
    if plain:
        say(
            f"warning: others can read and write replicas of an earlier release, which speak no TLS: {plain}; "
            "`zonectl node drain NAME` moves them, and those that move speak TLS"
        )
