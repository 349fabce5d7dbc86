"""Scripts of commands and expected output, with prose between (the habit of etcd-io/raft's tests).

A block is a command line, ``----``, and the expected output up to an empty line. Lines before a command that
begin with ``#`` are prose. ``DATADRIVEN_REWRITE=1`` writes what the code says now into the script: read the
difference before you keep it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True, slots=True)
class Block:
    """``arguments`` are the ``name=value`` words after the command."""

    line: int
    prose: str
    command: str
    arguments: dict[str, str]
    expected: str
    source: str


def read_blocks(path: Path) -> Iterator[Block]:
    prose: list[str] = []
    lines = iter(enumerate(path.read_text().splitlines(), 1))
    for number, line in lines:
        if not line.strip() or line.startswith("#"):
            prose.append(line)
            continue
        words = line.split()
        separator = next(lines, (0, ""))[1]
        if separator != "----":
            raise ValueError(f"{path.name}:{number}: a command needs a line of ---- after it")
        expected: list[str] = []
        for _, output in lines:
            if not output.strip():
                break
            expected.append(output)
        arguments = dict(word.split("=", 1) for word in words[1:])
        yield Block(number, "\n".join(prose), words[0], arguments, "\n".join(expected), line)
        prose = []


def run_script(name: str, execute: Callable[[Block], str]) -> None:
    """Run each block and compare; with ``DATADRIVEN_REWRITE`` rewrite the script instead."""
    path = SCRIPTS / name
    blocks = list(read_blocks(path))
    assert blocks, f"{name} holds no command"
    results = [(block, execute(block)) for block in blocks]
    if os.environ.get("DATADRIVEN_REWRITE"):
        path.write_text("".join(f"{b.prose}\n{b.source}\n----\n{out}\n\n".lstrip("\n") for b, out in results))
        return
    for block, output in results:
        assert output == block.expected, f"{name}:{block.line}: {block.source}"
