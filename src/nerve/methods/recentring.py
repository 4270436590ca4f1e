"""Recentring: differences between the means of sites or cohorts are removed. No label is used.

**By site** (`SiteShifts`; ``recentre="site"`` or another column): each site is shifted to the
common mean (after Zanini et al. 2018, who recentre sessions). With t the features of a participant,
m their mean over all training participants and m_s over the n participants of site s,

    t ← t - n / (n + 1) (m_s - m).

A site of one participant is shifted half of the way, a large site nearly all of it. The shift of a
known site comes from its training participants only; the shift of another site from its own
participants. A site is known if it has at least ten training participants, because its mean is
saved with the model and the mean of few would reveal them. If the other sites have fewer than ten
participants together, the smallest known site is dropped as well: the mean of these few could
otherwise be computed from the common mean and those of the known sites.

**By cohort** (`CohortMeans`; ``recentre="cohort"``, or ``"cohort+site"`` for the sites within each
cohort): pipelines differ more than participants do, so each cohort is whitened by its *own* mean FC
before the logarithm, G_c^-½ S G_c^-½. A cohort that was not trained on is whitened by the mean of
its own participants, of whom there must be ten. With ``"cohort+site"``, sites of fewer than ten are
whitened by the mean of their cohort.
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

# how a method had to deviate (`Method.adapted_`)
UNSEEN_SITES = (
    "sites with fewer than ten training participants are recentred by their own, without labels"
)
UNSEEN_COHORTS = (
    "cohorts that were not trained on are whitened by the mean of their own participants, "
    "without labels"
)
COHORT = "cohort"
Features = Callable[[np.ndarray], np.ndarray]  # rows → their features, (n, …)


@dataclass(frozen=True)
class SiteShifts:
    """How far each site is from the common mean, n / (n + 1) (m_s - m).

    Examples
    --------
    >>> features = np.array([[0.0], [2.0]] * 10 + [[8.0]] * 10)
    >>> shifts = SiteShifts.of(features.__getitem__, np.array(["a"] * 20 + ["b"] * 10))
    >>> new, sites = np.array([[1.0], [5.0]]), np.array(["a", "c"])
    >>> shifts.with_new_sites(new.__getitem__, sites).apply(new, sites).ravel().round(3).tolist()
    [3.222, 4.167]
    """

    sizes: Mapping[str, int]  # site → number of participants that its shift comes from
    common: np.ndarray  # (…): the mean features m
    shifts: np.ndarray  # (sites, …), in the order of `sizes`

    @classmethod
    def of(cls, features: Features, sites: np.ndarray) -> SiteShifts:
        """From training participants; the top of this file says which sites get a shift."""
        sizes, totals = _sizes_and_totals(features, sites, np.arange(len(sites)))
        common = np.sum(list(totals.values()), axis=0) / len(sites)
        known = {site: n for site, n in sizes.items() if n >= FEWEST}
        n_other = len(sites) - sum(known.values())
        if known and 0 < n_other < FEWEST:
            # otherwise common mean and shifts would give the mean of the few others
            del known[min(known, key=lambda site: known[site])]
        return cls(known, common, _shifts(known, totals, common))

    def with_new_sites(self, features: Features, sites: np.ndarray) -> SiteShifts:
        """Add shifts for sites that have none, from the participants given here."""
        if not self.has_new_sites(sites):
            return self
        rows = np.flatnonzero([site not in self.sizes for site in sites])
        sizes, totals = _sizes_and_totals(features, sites, rows)
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
        """Whether one of these sites has no shift."""
        return not set(sites.tolist()) <= self.sizes.keys()


@dataclass(frozen=True)
class CohortMeans:
    """Whitening of each group (a cohort, or a site within it) by its own mean FC.

    A group that was trained on is recognised by its name and whitened by the mean of the training
    participants; another group by the mean of its own participants.
    """

    sizes: Mapping[str, int]  # group → number of participants that its mean comes from
    whitenings: np.ndarray  # (groups, R, R), in the order of `sizes`

    @classmethod
    def of(cls, view: TangentView, cohort: Cohort, recentre: str) -> CohortMeans:
        """From training participants.

        Parameters
        ----------
        view : TangentView
            It computes a whitening from FC.
        cohort : Cohort
            One, or several that were concatenated.
        recentre : str
            ``cohort``, or ``cohort+`` and the column of the site.

        Returns
        -------
        CohortMeans
        """
        empty = cls({}, np.empty((0, cohort.n_regions, cohort.n_regions)))
        return empty._with_new_groups(view, cohort, groups_of(cohort, recentre))

    def whitenings_of(
        self, view: TangentView, cohort: Cohort, recentre: str
    ) -> tuple[OwnWhitenings, bool]:
        """The whitening of each participant of any cohort.

        Parameters
        ----------
        view : TangentView
            It computes a whitening from FC.
        cohort : Cohort
            The participants to whiten.
        recentre : str
            As in `of`.

        Returns
        -------
        whitenings : OwnWhitenings
        has_new : bool
            Whether there is a group that was not trained on.
        """
        groups = groups_of(cohort, recentre, self.sizes)
        means = self._with_new_groups(view, cohort, groups)
        names = list(means.sizes)
        group_of = np.array([names.index(group) for group in groups], int)
        return OwnWhitenings(means.whitenings, group_of), len(names) > len(self.sizes)

    def _with_new_groups(
        self, view: TangentView, cohort: Cohort, groups: np.ndarray
    ) -> CohortMeans:
        """Add the groups that are not known, from their participants."""
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
                    f"{len(rows)} participants of {group} to compute its mean from",
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
    """Whether recentring is by ``cohort`` or ``cohort+COLUMN``, rather than by a column alone."""
    return recentre is not None and (recentre == COHORT or recentre.startswith(f"{COHORT}+"))


def groups_of(
    cohort: Cohort, recentre: str, known: Mapping[str, int] = MappingProxyType({})
) -> np.ndarray:
    """The group of each participant: the cohort, or a site in it with at least ten participants.

    Parameters
    ----------
    cohort : Cohort
        One, or several that were concatenated.
    recentre : str
        ``cohort``, or ``cohort+`` and the column of the site.
    known : mapping
        Groups that were trained on, which are kept whatever their number of participants here.

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
        counts = pd.Series(sites).value_counts(sort=True)  # the smallest site last
        kept_sites = [str(site) for site, n in counts.items() if n >= FEWEST or site in known]
        n_others = int((groups == name).sum()) - int(counts.reindex(kept_sites).sum())
        if kept_sites and 0 < n_others < FEWEST and name not in known:
            # the others need a mean of at least ten: the smallest site joins them
            kept_sites.pop()
        for row, site in zip(rows, sites, strict=True):
            if site in kept_sites:
                groups[row] = site
    return groups


def site_card_lines(sizes: Mapping[str, int]) -> list[str]:
    """The line of a model card on sites: their means can be read from the weights."""
    if not sizes:
        return []
    return [
        f"Sites: {len(sizes)}, recentred, named in config.json; the weights hold the mean of each, "
        f"the smallest of {min(sizes.values())} participants"
    ]


def sites_of(cohort: Cohort, column: str) -> np.ndarray:
    """The site of every participant, as a word; a participant without one is refused."""
    where = f"participants of {cohort.name!r}"
    known_columns([column], cohort.participants.columns, where)
    sites = cohort.participants[column]
    if sites.isna().any():
        n_missing = int(sites.isna().sum())
        raise problem(
            where,
            f"column {column!r} is empty for {n_missing} of {len(sites)} participants",
            expected="a site for every participant, to recentre by",
            remedy="Fill it in, or leave them out.",
        )
    return sites.astype(str).to_numpy(object)


def _sizes_and_totals(
    features: Features, sites: np.ndarray, rows: np.ndarray
) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """How many of the participants in these rows each site has, and the sum of their features."""
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
    """(sites, …): n / (n + 1) (m_s - m) of each site."""
    shifts = [n / (n + 1) * (totals[site] / n - common) for site, n in sizes.items()]
    return np.array(shifts, np.float32).reshape(len(shifts), *common.shape)
