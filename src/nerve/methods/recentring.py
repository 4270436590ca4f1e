"""Recentring by site: each site's mean is carried to the common mean.

With t a participant's features, m their mean over the training participants and m_s that over the n
participants of site s, they become t - n / (n + 1) (m_s - m). One participant alone is carried half
the way, a large site all the way. Nothing but the site is looked at: no labels. Of a known site
only training participants count (after Zanini et al. 2018, who recentre sessions). A site of fewer
than ten of them is no known site: its mean, kept with a model that users pass on, would show them.
Where all such sites together have fewer than ten, the smallest of the others is none either.

Recentring by cohort (``recentre="cohort"``, or ``"cohort+site"`` for the sites within each) is
another step: pipelines differ more than participants do, so each cohort is whitened by its *own*
mean FC before the logarithm, G_c^-½ S G_c^-½, and a cohort that was not trained on by that of its
own participants, without labels, ten at least. Sites of fewer than ten are whitened by the mean of
their cohort.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import known_columns, naming_participants, problem
from nerve._utils.privacy import printable_name
from nerve.core.views import OwnWhitenings, TangentView
from nerve.data.cohort import Cohort
from nerve.data.quality.likeness import FEWEST
from nerve.methods.inputs import check_numbers, chunks

UNSEEN = (
    "sites with fewer than ten training participants are recentred by their own, without labels"
)
UNSEEN_COHORT = (
    "cohorts that were not trained on are whitened by the mean of their own participants, "
    "without labels"
)
COHORT = "cohort"
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


@dataclass(frozen=True)
class CohortMeans:
    """Whitening of each cohort, or site within it, by its own mean.

    A group that was trained on is known by its name, and whitened by the mean of the training
    participants; another one by its own.
    """

    sizes: Mapping[str, int]  # group → participants whom its mean comes from
    whitenings: np.ndarray  # (groups, R, R)

    @classmethod
    def of(cls, view: TangentView, cohort: Cohort, recentre: str) -> CohortMeans:
        """From training participants.

        Parameters
        ----------
        view : TangentView
            Which says how FC is whitened.
        cohort : Cohort
            One, or several that were concatenated.
        recentre : str
            ``cohort``, or ``cohort+`` and the column of the site.

        Returns
        -------
        CohortMeans
        """
        nothing = cls({}, np.empty((0, cohort.n_regions, cohort.n_regions)))
        return nothing._with_new(view, cohort, groups_of(cohort, recentre))

    def meet(self, view: TangentView, cohort: Cohort, recentre: str) -> tuple[OwnWhitenings, bool]:
        """The whitening of each participant of any cohort, and whether a group was not known.

        Parameters
        ----------
        view : TangentView
            Which says how FC is whitened.
        cohort : Cohort
            Whose participants are whitened.
        recentre : str
            As in `of`.

        Returns
        -------
        OwnWhitenings
        bool
        """
        groups = groups_of(cohort, recentre, self.sizes)
        means = self._with_new(view, cohort, groups)
        names = list(means.sizes)
        group_of = np.array([names.index(group) for group in groups], int)
        return OwnWhitenings(means.whitenings, group_of), len(names) > len(self.sizes)

    def _with_new(self, view: TangentView, cohort: Cohort, groups: np.ndarray) -> CohortMeans:
        """With the groups that are not known, from their participants."""
        sizes = dict(self.sizes)
        whitenings = list(self.whitenings)
        ids = cohort.participants["participant_id"].to_numpy(object)
        for group in dict.fromkeys(groups.tolist()):
            if group in sizes:
                continue
            rows = np.flatnonzero(groups == group)
            if len(rows) < FEWEST:
                raise problem(
                    f"Cohort {cohort.name!r}",
                    f"{len(rows)} participants of {group} to find its own mean from",
                    expected=f"at least {FEWEST}, for recentring by cohort",
                    remedy="Give more participants of that cohort together, or use a model without "
                    "recentring.",
                )
            group_cohort = cohort.subset(rows)
            for places in chunks(len(group_cohort)):
                check_numbers(group_cohort.inputs("fc", places), group_cohort, places)
            with naming_participants(ids[rows]):
                whitenings.append(view.whitening_of(group_cohort.connectivity))
            sizes[group] = len(rows)
        return CohortMeans(sizes, np.array(whitenings).reshape(len(sizes), *cohort.shape[1:]))


def is_by_cohort(recentre: str | None) -> bool:
    """Whether recentring is by cohort, perhaps with sites in it, rather than by a column alone."""
    return recentre is not None and (recentre == COHORT or recentre.startswith(f"{COHORT}+"))


def groups_of(
    cohort: Cohort, recentre: str, known: Mapping[str, int] = MappingProxyType({})
) -> np.ndarray:
    """The group of each participant: the cohort, or the site in it where that has ten participants.

    Parameters
    ----------
    cohort : Cohort
        One, or several that were concatenated.
    recentre : str
        ``cohort``, or ``cohort+`` and the column of the site.
    known : mapping
        Groups of training participants, which need no ten here.

    Returns
    -------
    (n,) array of str
    """
    groups = np.array([printable_name(name) for name in cohort.cohort_names], object)
    column = recentre.partition("+")[2]
    if not column:
        return groups
    known_columns([column], cohort.participants.columns, f"participants of {cohort.name!r}")
    values = cohort.participants[column]
    for name in dict.fromkeys(groups.tolist()):
        rows = np.flatnonzero((groups == name) & values.notna().to_numpy())
        sites = np.array([printable_name(f"{name}: {site}") for site in values.iloc[rows]], object)
        counts = pd.Series(sites).value_counts(sort=True)
        own = [str(site) for site, n in counts.items() if n >= FEWEST or site in known]
        n_rest = int((groups == name).sum()) - int(counts.reindex(own).sum())
        if own and 0 < n_rest < FEWEST and name not in known:
            # the few others need a mean of ten: the smallest site shares that of its cohort
            own.pop()
        for row, site in zip(rows, sites, strict=True):
            if site in own:
                groups[row] = site
    return groups


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
