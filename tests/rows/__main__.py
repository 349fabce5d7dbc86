"""``python -m tests.rows [--check]``: write ``docs/requirements.md``; report what is wrong with the markers."""

from __future__ import annotations

import sys

from tests.rows.sources import Sources
from tests.rows.table import TABLE, problems, read_coverage, render


def main(arguments: list[str]) -> int:
    """Exit code 1: something is wrong, or with ``--check`` the written table is out of date."""
    coverage = read_coverage(Sources())
    complaints = list(problems(coverage))
    if "--check" not in arguments:
        TABLE.write_text(render(coverage))
    elif TABLE.read_text() != render(coverage):
        complaints.append(f"{TABLE.name} is out of date: run make rows")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
