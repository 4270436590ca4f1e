"""What a torture reports: a promise, what was measured, and whether it was kept."""

from typing import NamedTuple


class Promise(NamedTuple):
    """One row of the table in docs/reliability.md."""

    promise: str  # what a user may rely on, in plain words
    measured: str  # what was done and what came of it, with figures
    kept: bool
