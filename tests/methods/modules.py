"""Untrained modules of methods, for tests that look inside."""

from typing import Any

from nerve.data.parcellation import Parcellation


def untrained(method: Any, n_regions: int) -> Any:
    """What the method would train for so many regions."""
    return method.build(
        Parcellation(tuple(f"r{i}" for i in range(n_regions)), ("a",) * n_regions, name="test")
    )
