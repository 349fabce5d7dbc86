"""Terms of a write of one key, besides the value that is to be stored."""

from __future__ import annotations

from dataclasses import dataclass

ABANDONED_MAX = 16
"""Operation ids that one write may name."""


@dataclass(frozen=True, slots=True)
class WriteTerms:
    """``if_revision``: only while the key's last write is the one of this revision; ``if_absent``: only while
    there is no such key. ``abandons``: operation ids of earlier writes whose outcome is unknown: whichever of
    them has not been applied before this one never will be. Raises ValueError for what does not go together.
    """

    if_revision: int | None = None
    if_absent: bool = False
    abandons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.if_revision is not None and self.if_absent:
            raise ValueError("give if_revision or if_absent, not both")
        if self.if_revision is not None and self.if_revision < 1:
            raise ValueError(f"a revision is 1 or higher, not {self.if_revision}")
        if len(self.abandons) > ABANDONED_MAX:
            raise ValueError(f"a write abandons at most {ABANDONED_MAX} others, not {len(self.abandons)}")

    @property
    def is_conditional(self) -> bool:
        return self.if_absent or self.if_revision is not None

    def check_operation(self, operation_id: str) -> None:
        """Raises ValueError for a write without an id, or that abandons itself."""
        if not operation_id:
            raise ValueError("a write needs an operation id")
        if operation_id in self.abandons:
            raise ValueError(f"operation {operation_id} cannot abandon itself")


ANY = WriteTerms()
