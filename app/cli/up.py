"""``zonectl up``: the embedded installation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from app.cli.exits import CliError, ExitCode, UsageError
from app.cli.options import (
    DEFAULT_DATA_DIR,
    ApiOptions,
    DataDirOption,
    InsecureOption,
    make_settings,
    option,
    setting,
)
from app.cli.services import accept_spark

if TYPE_CHECKING:
    from app.configuration.settings import Settings
    from app.supervision.child_plan import NodeSpec

DEFAULT_NODES = 3
AuthOption = Annotated[
    bool | None,
    setting(
        "--auth/--no-auth",
        "Require users to log in, over HTTPS. Once required, it stays so.",
        default="as before; --auth at first",
    ),
]


@dataclass(frozen=True, slots=True)
class ChosenNodes:
    """The data nodes."""

    nodes: Annotated[
        int | None, setting("--nodes", "Number of data nodes: n1, n2, ...", min=1, default="3")
    ] = None
    topology: Annotated[
        Path | None,
        setting("--topology", 'Data nodes, as a JSON list of {"name", "attributes", "profiles"}.', "FILE"),
    ] = None

    def read(self) -> tuple[NodeSpec, ...]:
        """Read the nodes of the file, or the default ones. Raises UsageError."""
        from app.supervision.child_plan import default_topology, read_topology
        from app.supervision.installation_state import UpError

        count, file = self.nodes, self.topology
        if file is None:
            return default_topology(count or DEFAULT_NODES)
        try:
            nodes = read_topology(file)
        except UpError as error:
            raise UsageError(str(error)) from error
        if count is not None and count > len(nodes):
            raise UsageError(f"--nodes {count}, but {file} has only {len(nodes)}")
        return nodes[:count]


def up(
    *,
    chosen: ChosenNodes,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    api: ApiOptions,
    demo: Annotated[bool, option("--demo", "Run `zonectl demo` once the API is ready.")] = False,
    auth: AuthOption = None,
    insecure: InsecureOption = False,
    leave: Annotated[bool, option("--exit", "With --demo: stop afterwards, with its exit code.")] = False,
) -> int:
    """Run everything on this machine until Ctrl-C.

    Starts etcd, the server with Spark, and the data nodes. A process that dies is
    restarted within 2 s. A server that has not responded for 20 s and a node that
    has not for 60 s are restarted too, with their stacks in their logs. All of them
    end with this process. The next `up` on the same data directory continues where
    this one stopped.

    Users log in, over HTTPS; the port of HTTP is for health checks. You have
    nothing to set up: `up` makes an administrator, and a token that only you can
    read, which your commands on this machine use to log in.
    `zonectl console-link` prints a link that opens the console logged in.

    With --no-auth no login is required. It is for a data directory that is new or was
    made with it, listens on the loopback address only, and refuses requests that
    a proxy has forwarded. --auth ends that for good.

    \b
    Examples:
      zonectl up
      zonectl up --nodes 5 --data-dir /var/lib/zonekeeper --https-port 7443
      zonectl up --no-auth --data-dir /tmp/trial
      zonectl up --topology nodes.json
    """
    from app.supervision.child_plan import UpOptions
    from app.supervision.installation import up as run_up
    from app.supervision.installation_state import UpError
    from rebalance.hosting.child import MissingToolError

    if leave and not demo:
        raise UsageError("--exit requires --demo")
    settings = make_settings(api, data_dir=data_dir)
    accept_spark(settings, insecure=insecure)
    nodes, ports = chosen.read(), _chosen_from(settings)
    options = UpOptions(settings, nodes, insecure, ports, auth, demo=demo, leave_after_demo=leave)
    try:
        return run_up(options)
    except (UpError, MissingToolError, FileNotFoundError) as error:
        raise CliError(ExitCode.FAILED, f"zonectl up: {error}") from error


def _chosen_from(settings: Settings) -> range | None:
    """Range of ports from which to choose; None: any. Raises UsageError."""
    from app.configuration.settings import port_range

    if settings.up_port_range is None:
        return None
    try:
        return port_range(settings.up_port_range, "ZONEKEEPER_UP_PORT_RANGE its", "20000-29999")
    except ValueError as error:
        raise UsageError(str(error)) from error
