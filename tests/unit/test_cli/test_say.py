"""Output of commands: what people have written stays on its line, and a caret below its spot."""

from __future__ import annotations

import io
import json

from app.cli.options import OutputFormat
from app.cli.output import print_objects, print_rows
from app.cli.problems import ProblemDocument, describe_problem
from app.cli.sql_source import Script

FORGED = "z\nEVENTS  8  \x1b[31m\u202e"
SHOWN = "z\\nEVENTS  8  \\x1b[31m\\u202e"


def test_a_table_has_a_line_a_row() -> None:
    out = io.StringIO()
    print_rows(("zone", FORGED), [(FORGED, "1"), ("東京", "2")], out=out)
    head, first, second = out.getvalue().splitlines()
    assert (head.split()[0], first, second) == ("zone", f"{SHOWN}  1", "東京" + " " * (len(SHOWN) - 4) + "  2")
    assert SHOWN in head


def test_json_has_the_text_itself() -> None:
    for form in (OutputFormat.JSON, OutputFormat.JSONL):
        out = io.StringIO()
        print_objects([{"zone": FORGED}], form, out)
        read = json.loads(out.getvalue())
        assert read in ([{"zone": FORGED}], {"zone": FORGED})
        assert not set(out.getvalue()) & {"\x1b", "\u202e"}


def test_a_refusal_is_one_line_and_points_at_its_spot() -> None:
    problem = ProblemDocument(400, "NAME_NOT_VISIBLE", f"zone {FORGED}", 4009, "42602", line=1, column=13)
    assert problem.headline() == f"NAME_NOT_VISIBLE (4009, 42602): zone {SHOWN}"
    headline, source, caret = describe_problem(Script("-e", 'CREATE ZONE "a\u202eb"'), problem).split("\n")
    assert headline.startswith("-e:1:13: NAME_NOT_VISIBLE")
    assert source == '  CREATE ZONE "a\ufffdb"'
    assert caret.index("^") == source.index('"')
