"""The panels of the three dashboards that ship, row by row.

What the whole installation has is aggregated by ``max``, as every server says it; what processes have is
summed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Unit(Enum):
    """Units, with Grafana's names."""

    COUNT = "short"
    SECONDS = "s"
    BYTES = "bytes"
    PER_SECOND = "ops"
    BYTES_PER_SECOND = "Bps"
    RATIO = "percentunit"


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """``legend``: with labels in double braces."""

    promql: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """``is_number``: only the value now is shown, large."""

    title: str
    unit: Unit
    queries: tuple[PanelQuery, ...]
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """``uid`` is its address in Grafana and the name of its file."""

    uid: str
    title: str
    panels: tuple[Panel, ...]


def _number(title: str, promql: str, unit: Unit = Unit.COUNT) -> Panel:
    return Panel(title, unit, (PanelQuery(promql),), is_number=True)


def _lines(title: str, unit: Unit, *queries: tuple[str, str]) -> Panel:
    return Panel(title, unit, tuple(PanelQuery(*query) for query in queries))


def _percentiles(title: str, histogram: str, by: str = "") -> Panel:
    """The median and the 99th of a histogram."""
    labels, legend = (f"le, {by}", f"{{{{{by}}}}} ") if by else ("le", "")
    rate = f"sum by ({labels}) (rate({histogram}_bucket[5m]))"
    return _lines(
        title,
        Unit.SECONDS,
        (f"histogram_quantile(0.5, {rate})", f"{legend}median"),
        (f"histogram_quantile(0.99, {rate})", f"{legend}99 %"),
    )


def _rate(title: str, counter: str, by: str, unit: Unit = Unit.PER_SECOND) -> Panel:
    return _lines(title, unit, (f"sum by ({by}) (rate({counter}[5m]))", f"{{{{{by}}}}}"))


INSTALLATION = Dashboard(
    "zonekeeper-installation",
    "Zonekeeper: installation",
    (
        _number("Alerts that fire", "sum(max by (severity) (zonekeeper_alerts_firing))"),
        _number("Partitions without a majority", "max(zonekeeper_partitions_without_majority)"),
        _number("Nodes alive", 'max(zonekeeper_nodes{state="alive"})'),
        _number("Controller leads", "max(zonekeeper_controller_present)"),
        _number("Spark takes placements", "max(zonekeeper_spark_up)"),
        _number("Stores agree", "min(zonekeeper_stores_agree)"),
        _rate("Statements by outcome", "zonekeeper_statements_total", "outcome"),
        _percentiles("Statements' duration", "zonekeeper_statement_seconds"),
        _rate("Errors by code", 'zonekeeper_statements_total{code!=""}', "code"),
        _rate("Puts by outcome", "zonekeeper_puts_total", "outcome"),
        _percentiles("Puts' duration", "zonekeeper_put_seconds"),
        _percentiles("Requests' duration", "zonekeeper_http_request_seconds", "area"),
        _lines(
            "Statements that wait and run",
            Unit.COUNT,
            ("sum(zonekeeper_statements_waiting)", "waiting"),
            ("sum(zonekeeper_statements_running)", "running"),
        ),
        _rate("Logins", "zonekeeper_logins_total", "outcome"),
        _rate("Refusals by code", "zonekeeper_refusals_total", "code"),
        _lines("Relay's lag", Unit.SECONDS, ("max(zonekeeper_relay_lag_seconds)", "lag")),
        _lines(
            "Event loop's lag",
            Unit.SECONDS,
            ("max by (instance) (zonekeeper_event_loop_lag_seconds)", "{{instance}}"),
        ),
        _lines(
            "Certificates end in",
            Unit.SECONDS,
            (
                "min by (certificate, source) (zonekeeper_certificate_expiry_timestamp_seconds - time())",
                "{{certificate}} {{source}}",
            ),
        ),
        _lines(
            "Unexpected failures",
            Unit.PER_SECOND,
            ("sum by (instance) (rate(zonekeeper_defects_total[5m]))", "{{instance}}"),
        ),
    ),
)

ZONES = Dashboard(
    "zonekeeper-zones",
    "Zonekeeper: zones and moves",
    (
        _number("Zones", "max(zonekeeper_zones)"),
        _number("Partitions that move", 'max(zonekeeper_partitions{state="MOVING"})'),
        _number("Partitions that wait", 'max(zonekeeper_partitions{state="WAITING"})'),
        _number("Operations that are stuck", "max(zonekeeper_operations_stuck)"),
        _number("Bytes left to copy", "max(zonekeeper_operation_bytes_left)", Unit.BYTES),
        _number("Partitions left to move", "max(zonekeeper_operation_partitions_left)"),
        _lines("Partitions by state", Unit.COUNT, ("max by (state) (zonekeeper_partitions)", "{{state}}")),
        _lines("Moves by cause", Unit.COUNT, ("max by (cause) (zonekeeper_moves)", "{{cause}}")),
        _lines(
            "Moves by stage",
            Unit.COUNT,
            ("sum by (stage) (max by (stage, cause) (zonekeeper_moves))", "{{stage}}"),
        ),
        _lines(
            "Oldest move at a stage",
            Unit.SECONDS,
            ("max by (stage) (zonekeeper_move_oldest_seconds)", "{{stage}}"),
        ),
        _lines(
            "Zones without a majority",
            Unit.COUNT,
            ("max by (zone) (zonekeeper_zone_partitions_without_majority) > 0", "{{zone}}"),
        ),
        _lines("Zones' bytes", Unit.BYTES, ("topk(20, max by (zone) (zonekeeper_zone_bytes))", "{{zone}}")),
        _lines("Operations by state", Unit.COUNT, ("max by (state) (zonekeeper_operations)", "{{state}}")),
        _lines(
            "Operations end, at this rate, in",
            Unit.SECONDS,
            (
                "max(zonekeeper_operation_bytes_left)"
                " / clamp_min(sum(rate(zonekeeper_copied_bytes_total[10m])), 1)",
                "left",
            ),
        ),
        _percentiles("Operations' duration", "zonekeeper_operation_seconds", "kind"),
        _percentiles("Placements' duration", "zonekeeper_placement_seconds", "engine"),
        _rate("Placements by engine", "zonekeeper_placements_total", "engine"),
        _rate("Guarded writes", "zonekeeper_guarded_writes_total", "outcome"),
        _lines(
            "Guarded writes decided anew",
            Unit.PER_SECOND,
            ("sum(rate(zonekeeper_guarded_write_conflicts_total[5m]))", "conflicts"),
        ),
    ),
)

NODES = Dashboard(
    "zonekeeper-nodes",
    "Zonekeeper: nodes and metastore",
    (
        _number("Nodes down", 'max(zonekeeper_nodes{state="down"})'),
        _number("Metastore answers", "min(zonekeeper_metastore_up)"),
        _number("Mirror's age", "max(zonekeeper_mirror_age_seconds)", Unit.SECONDS),
        _number("Leases", "max(zonekeeper_metastore_leases)"),
        _lines(
            "Members by state",
            Unit.COUNT,
            ("sum by (state) (zonekeeper_node_members)", "{{state}}"),
        ),
        _lines("Groups led", Unit.COUNT, ("sum by (instance) (zonekeeper_node_leads)", "{{instance}}")),
        _lines(
            "Disk in use",
            Unit.RATIO,
            ("1 - zonekeeper_node_disk_free_bytes / zonekeeper_node_disk_size_bytes", "{{instance}}"),
        ),
        _lines(
            "Members' bytes", Unit.BYTES, ("sum by (instance) (zonekeeper_node_member_bytes)", "{{instance}}")
        ),
        _rate("Bytes copied", "zonekeeper_copied_bytes_total", "instance", Unit.BYTES_PER_SECOND),
        _rate("Changes of leader", "zonekeeper_node_leader_changes_total", "instance"),
        _rate("Members restarted", "zonekeeper_node_member_restarts_total", "instance"),
        _lines(
            "Members' fsync, mean",
            Unit.SECONDS,
            (
                "sum by (instance) (rate(zonekeeper_node_member_fsync_seconds_total[5m]))"
                " / sum by (instance) (rate(zonekeeper_node_member_fsyncs_total[5m]))",
                "{{instance}}",
            ),
        ),
        _percentiles("Metastore's answers", "zonekeeper_metastore_request_seconds", "operation"),
        _rate("Metastore's requests", "zonekeeper_metastore_requests_total", "outcome"),
        _lines(
            "etcd's space, of its quota",
            Unit.RATIO,
            (
                "max by (member) (zonekeeper_etcd_member_in_use_bytes)"
                " / max by (member) (zonekeeper_etcd_member_quota_bytes)",
                "{{member}} in use",
            ),
            (
                "max by (member) (zonekeeper_etcd_member_allocated_bytes)"
                " / max by (member) (zonekeeper_etcd_member_quota_bytes)",
                "{{member}} allocated",
            ),
        ),
        _lines(
            "etcd's members that know a leader",
            Unit.COUNT,
            ("max by (member) (zonekeeper_etcd_member_has_leader)", "{{member}}"),
        ),
        _lines(
            "Queues' oldest entry",
            Unit.SECONDS,
            ("max by (queue) (zonekeeper_queue_oldest_seconds)", "{{queue}}"),
        ),
        _rate("Queues' retries", "zonekeeper_queue_retries_total", "queue"),
        _lines("Store servers down", Unit.COUNT, ("max(zonekeeper_store_servers_down)", "servers")),
        _lines(
            "Store partitions being filled",
            Unit.COUNT,
            ("max(zonekeeper_store_partitions_filling)", "partitions"),
        ),
    ),
)

DASHBOARDS = (INSTALLATION, ZONES, NODES)
