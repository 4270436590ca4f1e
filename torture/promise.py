"""What a torture reports: a promise, what was measured, and whether it was kept."""

from collections.abc import Sequence
from typing import NamedTuple


class Promise(NamedTuple):
    """One row of the table in docs/reliability.md."""

    promise: str  # what a user may rely on, in plain words
    measured: str  # what was done and what came of it, with figures
    kept: bool


def with_troubles(measured: str, troubles: Sequence[str], at_most: int | None = None) -> str:
    """What was measured, followed by what went wrong (all of it, or only the first few)."""
    return "; ".join([measured, *troubles[:at_most]])
