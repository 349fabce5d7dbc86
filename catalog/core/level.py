"""The release level: one number that says which formats and which meanings may be written.

Builds of two levels run side by side while the level in force is the lower one: what only the newer one knows
is not written before an operator has said that no older build comes back (`zonectl upgrade finalise`). The
level in force is a field of the metastore's ``epoch`` key, which everybody reads before they write
(``rebalance/tech-notes/levels.md``).
"""

from __future__ import annotations

from dataclasses import dataclass

LEVEL = 1
"""Release level of this build."""
NO_LEVEL = 0
"""Level of builds that register none: 0.2.0 and earlier."""
BELOW_LEVEL_CODE = 6
"""Exit code of a process that is below the level in force: starting it again changes nothing."""


@dataclass(frozen=True, slots=True)
class ReleaseLevel:
    """``since``: the first version of this level. ``schema``: the earliest of the catalog's schemas whose
    builds may write a catalog at this level; empty: any. ``gains``: what works from then on, each in words."""

    number: int
    since: str
    schema: str = ""
    gains: tuple[str, ...] = ()


LEVELS = (
    ReleaseLevel(NO_LEVEL, "0.2.0"),
    ReleaseLevel(
        1,
        "0.3.0",
        schema="0014",
        gains=("older builds are refused by name",),
    ),
)
"""Each level, from the lowest on."""


def inactive(in_force: int) -> tuple[str, ...]:
    """Return, in words, what this build brings and the level in force keeps back."""
    return tuple(gain for level in LEVELS if in_force < level.number for gain in level.gains)


def schema_of(number: int) -> str:
    """The earliest schema whose builds may write a catalog at that level; empty: any."""
    return max((level.schema for level in LEVELS if level.number <= number), default="")


def level_of(schema: str) -> int:
    """Return the level of a catalog that builds of that schema may write, and no earlier ones: the inverse of
    ``schema_of``."""
    return max(level.number for level in LEVELS if level.schema <= schema)


def below_level(in_force: int, what: str) -> str:
    """Return why a build may not run, in words that name both levels."""
    known = next((level.since for level in LEVELS if level.number == in_force), "")
    least = f"{known} or later" if known else "a later version"
    return (
        f"{what} is of release level {LEVEL}, and this installation is at level {in_force}, which an upgrade "
        f"has finalised: start {least}, which is of that level"
    )
