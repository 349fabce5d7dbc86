"""``zonectl metastore``: commands for when etcd or the catalog was restored from a backup."""

from __future__ import annotations

import sys

from app.cli.connection import ObjectApi
from app.cli.exits import ExitCode
from app.cli.options import ReasonOption, YesOption, group
from app.cli.output import confirm, counted, say

app = group("Check that catalog and etcd belong together, and continue after a restore.")


@app.command()
def status(api: ObjectApi) -> int:
    """Compare catalog and etcd.

    Exit code 1 when writes are stopped: one of the two was restored from an older
    backup (DIVERGED), or etcd has no space left (FULL).

    \b
    Examples:
      zonectl metastore status
      zonectl metastore status --format json | jq -r .reason
    """
    with api.client() as client:
        state = client.ask("GET", "metastore")
    epoch = f"epoch {state['epoch']}, catalog version {state['catalog_version']}"
    cluster = f"etcd cluster {state['cluster_id']} at revision {state['revision']}"
    api.show_one(state, f"{state['state']}: {epoch}, {cluster}", *filter(None, [state["reason"]]))
    return ExitCode.OK if state["state"] == "AGREED" else ExitCode.FAILED


@app.command()
def adopt(
    api: ObjectApi,
    yes: YesOption = False,
    reason: ReasonOption = "",
) -> None:
    """Accept the current state of catalog and etcd, and continue.

    For use after etcd, the catalog or both were restored from older backups and no
    newer one exists. The epoch is raised, every zone of the
    catalog is published again, and zones known only to etcd are dropped WITH THEIR
    DATA. If both agree, nothing is done. The difference is shown first; if it has
    changed by the time of adoption, nothing is done.

    \b
    Examples:
      zonectl metastore status
      zonectl metastore adopt
      zonectl metastore adopt --yes --format json
    """
    with api.client(reason) as client:
        shown = client.ask("GET", "metastore")
        if shown["kind"]:
            say(f"epoch {shown['epoch']}, {shown['kind']}: {shown['reason']}", out=sys.stderr)
            if not yes:
                confirm(
                    "Publish the catalog again, and drop zones known only to etcd?", "review the state above"
                )
        compared = {name: shown[name] for name in ("epoch", "kind", "reason")}
        # Every zone is published again, one after the other.
        done = client.ask("POST", "metastore", "adopt", body=compared, timeout_s=600)
    dropped = f", dropped: {', '.join(done['dropped'])}" if done["dropped"] else ""
    line = f"epoch {done['epoch']}: {counted(done['published'], 'zone')} published again{dropped}"
    agreed = f"catalog and etcd agree (epoch {done['epoch']}): nothing was done"
    api.show_one(done, line if done["adopted"] else agreed)
