"""Passwords come from a terminal or from standard input, never as arguments."""

from __future__ import annotations

import sys
from typing import Annotated

from app.cli.exits import UsageError
from app.cli.options import option

PasswordInput = Annotated[
    bool, option("--password-stdin", "Read the password from the first line of standard input.")
]


def read_password(name: str, from_stdin: bool) -> str:
    """Raises UsageError."""
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        import getpass

        password = getpass.getpass(f"Password of {name}: ")
    else:
        raise UsageError("there is no terminal to ask for the password: give it with --password-stdin")
    if not password:
        raise UsageError("the password is empty")
    return password
