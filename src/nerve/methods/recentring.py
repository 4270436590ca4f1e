"""Recentring by site: each site's mean is carried to the common mean.

With t a participant's features, m their mean over the training participants and m_s that over the n
participants of site s, they become t - n / (n + 1) (m_s - m). One participant alone is carried half
the way, a large site all the way. Nothing but the site is looked at: no labels. Of a known site
only training participants count (after Zanini et al. 2018, who recentre sessions). A site of fewer
than ten of them is no known site: its mean, kept with a model that users pass on, would show them.
Where all such sites together have fewer than ten, the smallest of the others is none either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nerve._utils.errors import known_columns, problem
from nerve.data.cohort import Cohort
from nerve.data.quality.likeness import FEWEST
from nerve.methods.inputs import chunks

UNSEEN = (
    "sites with fewer than ten training participants are recentred by their own, without labels"
)
Features = Callable[[np.ndarray], np.ndarray]  # rows → their features, (n, …)


@dataclass(frozen=True)
class SiteShifts:
    """How far each site is from the common mean.

    Examples
    --------
    >>> features = np.array([[0.0], [2.0]] * 10 + [[8.0]] * 10)
    >>> shifts = SiteShifts.of(features.__getitem__, np.array(["a"] * 20 + ["b"] * 10))
    >>> new, sites = np.array([[1.0], [5.0]]), np.array(["a", "c"])
    >>> shifts.with_new_sites(new.__getitem__, sites).apply(new, sites).ravel().round(3).tolist()
    [3.222, 4.167]
    """

    sizes: Mapping[str, int]  # site → participants whom its shift comes from
    common: np.ndarray  # (…): a participant's features
    shifts: np.ndarray  # (sites, …)

    @classmethod
    def of(cls, features: Features, sites: np.ndarray) -> SiteShifts:
        """From training participants, read some at a time; sites of few of them have no shift."""
        sizes, totals = _totals(features, sites, np.arange(len(sites)))
        common = np.sum(list(totals.values()), axis=0) / len(sites)
        known = {site: n for site, n in sizes.items() if n >= FEWEST}
        n_other = len(sites) - sum(known.values())
        if known and 0 < n_other < FEWEST:
            # the mean of the few others could be told from the common mean, less the known sites
            del known[min(known, key=lambda site: known[site])]
        return cls(known, common, _shifts(known, totals, common))

    def with_new_sites(self, features: Features, sites: np.ndarray) -> SiteShifts:
        """For a cohort: with the shifts of its sites that have none, from its own participants."""
        if not self.has_new_sites(sites):
            return self
        new = np.flatnonzero([site not in self.sizes for site in sites])
        sizes, totals = _totals(features, sites, new)
        shifts = np.concatenate([self.shifts, _shifts(sizes, totals, self.common)])
        return SiteShifts({**self.sizes, **sizes}, self.common, shifts)

    def apply(self, features: np.ndarray, sites: np.ndarray) -> np.ndarray:
        """Recentred features of participants of these sites, (n, …)."""
        recentred = features.copy()
        names = list(self.sizes)
        for name in set(sites.tolist()):
            recentred[sites == name] -= self.shifts[names.index(name)]
        return recentred

    def has_new_sites(self, sites: np.ndarray) -> bool:
        """Whether there is a site that has no shift."""
        return not set(sites.tolist()) <= self.sizes.keys()


def _totals(
    features: Features, sites: np.ndarray, rows: np.ndarray
) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """How many of these participants each site has, and the sums of their features."""
    totals: dict[str, Any] = dict.fromkeys(sorted(set(sites[rows].tolist())), 0.0)
    for places in chunks(len(rows)):
        part = rows[places]
        values = features(part)
        for site in set(sites[part].tolist()):
            totals[site] = totals[site] + values[sites[part] == site].sum(axis=0, dtype=float)
    sizes = {site: int((sites[rows] == site).sum()) for site in totals}
    return sizes, totals


def _shifts(
    sizes: Mapping[str, int], totals: Mapping[str, np.ndarray], common: np.ndarray
) -> np.ndarray:
    parts = [n / (n + 1) * (totals[site] / n - common) for site, n in sizes.items()]
    return np.array(parts, np.float32).reshape(len(parts), *common.shape)


def site_card_lines(sizes: Mapping[str, int]) -> list[str]:
    """What a model card says of sites: their means can be read from the weights."""
    if not sizes:
        return []
    return [
        f"Sites: {len(sizes)}, recentred, named in config.json; the weights hold the mean of each, "
        f"the smallest of {min(sizes.values())} participants"
    ]


def sites_of(cohort: Cohort, column: str) -> np.ndarray:
    """The site of every participant, as words."""
    where = f"participants of {cohort.name!r}"
    known_columns([column], cohort.participants.columns, where)
    sites = cohort.participants[column]
    if sites.isna().any():
        n_missing = int(sites.isna().sum())
        raise problem(
            where,
            f"column {column!r} is empty for {n_missing} of {len(sites)} participants",
            expected="a site for everyone, to recentre by",
            remedy="Fill it in, or leave them out.",
        )
    return sites.astype(str).to_numpy(object)
