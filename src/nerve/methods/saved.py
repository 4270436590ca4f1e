"""What a saved model says of itself must agree: labels with their fingerprint."""

from __future__ import annotations

from typing import Any

from nerve.checks import problem
from nerve.parcellation import Parcellation


def check_regions(parcellation: Parcellation, described: dict[str, Any], where: object) -> None:
    """Refuse regions that were changed or put in another order after the model was saved.

    Data are matched to a model by label: other labels would give other features, in silence.
    """
    if described.get("fingerprint") != parcellation.fingerprint:
        raise problem(
            where,
            "its regions are not those that the model was saved with (their fingerprint differs)",
            remedy="Copy the folder again from where it was made.",
        )
