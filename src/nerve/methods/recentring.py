"""Recentring by site: each site's mean is carried to the common mean, that of an unseen site by its own participants.

With t a participant's features, m their mean over the training participants and m_s that over the n participants of
site s, they become t - n / (n + 1) (m_s - m). One participant alone is carried half the way, a large site all the way.
Nothing but the site is looked at: no labels. Of a known site only training participants count (after Zanini et al.
2018, who recentre sessions).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nerve.checks import known_columns, problem
from nerve.cohort import Cohort

UNSEEN = "sites that were not trained on are recentred by their own participants, without labels"


@dataclass(frozen=True)
class SiteShifts:
    """How far each site is from the common mean.

    Examples
    --------
    >>> shifts = SiteShifts.of(np.array([[0.0], [2.0], [8.0]]), np.array(["a", "a", "b"]))
    >>> shifts.apply(np.array([[1.0], [5.0]]), np.array(["a", "c"])).ravel().round(3).tolist()
    [2.556, 4.167]
    """

    names: tuple[str, ...]
    common: np.ndarray  # (d,)
    shifts: np.ndarray  # (sites, d)

    @classmethod
    def of(cls, features: np.ndarray, sites: np.ndarray) -> SiteShifts:
        """From the features of training participants, (n, d), and their sites."""
        common = features.mean(axis=0, dtype=float)
        names = tuple(sorted(set(sites.tolist())))
        return cls(names, common, np.stack([_shift(features[sites == name], common) for name in names]))

    def apply(self, features: np.ndarray, sites: np.ndarray) -> np.ndarray:
        """Recentred features of any participants, (n, d)."""
        out = features.copy()
        for name in set(sites.tolist()):
            mine = sites == name
            known = name in self.names
            out[mine] -= self.shifts[self.names.index(name)] if known else _shift(features[mine], self.common)
        return out

    def unseen(self, sites: np.ndarray) -> bool:
        """Whether there is a site that was not trained on."""
        return not set(sites.tolist()) <= set(self.names)


def _shift(features: np.ndarray, common: np.ndarray) -> np.ndarray:
    n = len(features)
    return n / (n + 1) * (features.mean(axis=0, dtype=float) - common)


def sites_of(cohort: Cohort, column: str) -> np.ndarray:
    """The site of every participant, as words."""
    where = f"participants of {cohort.name!r}"
    known_columns([column], cohort.participants.columns, where)
    sites = cohort.participants[column]
    if sites.isna().any():
        raise problem(
            where,
            f"column {column!r} is empty for {int(sites.isna().sum())} of {len(sites)} participants",
            expected="a site for everyone, to recentre by",
            remedy="Fill it in, or leave them out.",
        )
    return sites.astype(str).to_numpy(object)
