"""Exit codes of commands, and the one exception that carries an exit code."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes that scripts may rely on; ``zonectl --help`` lists them."""

    OK = 0
    FAILED = 1
    """A statement, a key or a check was refused or is not as wanted."""
    UNREACHABLE = 3
    """No server answered, or none is known."""
    TIMED_OUT = 4
    """The time limit passed; what was asked for may still happen."""
    CHANGES = 5
    """`zonectl plan --check`: the catalog is not what the files say."""
    BELOW_LEVEL = 6
    """A process is below the release level in force: a later version is to be started."""
    USAGE = 64
    """The command line is wrong (EX_USAGE)."""
    INTERRUPTED = 130
    """Ctrl-C (128 + SIGINT)."""


class CliError(Exception):
    """End of a command: ``str(error)`` goes to stderr as it is, ``exit_code`` to the shell."""

    def __init__(self, exit_code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(CliError):
    """Wrong usage that the parser of options cannot see: options that exclude each other, invalid files."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.USAGE, message)
