"""What a put says of itself, on machines that may be slow."""

from __future__ import annotations

from rebalance.groups.router import RoutedPut


def is_applied_once(result: RoutedPut) -> bool:
    """By this call. One whose first attempt was applied and answered too late finds it applied already."""
    return not result.repeated or result.attempts > 1
