"""The checks of a cohort as a table: one row per check, with a verdict and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from nerve._utils.errors import listed
from nerve._utils.files import begins_with, check_may_write, write_tsv
from nerve.data.cohort import Cohort, describe_motion
from nerve.data.connectivity import CORRELATIONS, in_words
from nerve.data.quality.columns import Row, column_rows
from nerve.data.quality.likeness import FEWEST, Likeness
from nerve.data.quality.matrices import POSITIVE, ROUNDING, SMALL, TOLERANCE, scan_matrices
from nerve.data.quality.order import N_SHUFFLES, OrderCheck, check_order, check_shuffles

_MUCH_MOTION = 0.5  # mm of mean framewise displacement
# more scans than this of one participant are more often those of several, taken for one
_MANY_SCANS = 5
# below what rounding to two decimals does to an eigenvalue (-0.11 at 419 regions)
_CLEARLY_NEGATIVE = -0.2
# a group's mean FC outside these limits is not FC
_HIGHEST_MEAN = 0.8
_LOWEST_MEAN = -0.2
# share of small positive entries from which on some must be negative
_ONE_SIDED = 0.05
_COLUMNS = ["check", "value", "verdict", "detail"]


@dataclass(frozen=True)
class Quality:  # numpydoc ignore=PR02
    """What was found.

    Parameters
    ----------
    table : DataFrame
        One row per check: check, value, verdict ("ok", "note", "warning", "suspicious", "not
        usable") and detail.
    drops : DataFrame
        participant_id and reason of everyone who should not be used.
    order : OrderCheck
        Network contrast in the declared and in other region orders.
    """

    table: pd.DataFrame
    drops: pd.DataFrame
    order: OrderCheck

    @property
    def usable(self) -> bool:
        """Whether no check says "not usable"."""
        return not len(self.faults)

    @property
    def faults(self) -> tuple[str, ...]:
        """The checks that say "not usable"."""
        return tuple(self.table.loc[self.table["verdict"] == "not usable", "check"])

    def with_model(self, like: Likeness) -> Quality:
        """Add a row that says how like a model's training cohort this one is.

        Parameters
        ----------
        like : Likeness

        Returns
        -------
        Quality
        """
        verdict = "warning" if like.differences else "ok"
        row = ("like the model's", like.words, verdict, " ".join(like.differences))
        return replace(self, table=pd.concat([self.table, pd.DataFrame([row], columns=_COLUMNS)]))

    def write(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write checks and drops as one TSV; each participant to drop is a row.

        Parameters
        ----------
        path : path
            The file.
        overwrite : bool
            Replace an existing table of checks; another file is never replaced.
        """
        is_ours = begins_with(*self.table.columns)
        check_may_write(path, overwrite=overwrite, is_ours=is_ours)
        drops = self.drops.set_axis(["value", "detail"], axis=1)
        drops = drops.assign(check="drop", verdict="warning")
        write_tsv(path, pd.concat([self.table, drops], ignore_index=True))


def check_cohort(cohort: Cohort) -> Quality:
    """Check a cohort in one pass over its matrices.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    Quality

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> fc = np.stack([np.corrcoef(rng.normal(size=(100, 150))) for _ in range(12)])
    >>> table = pd.DataFrame({"participant_id": [f"p{i}" for i in range(12)]})
    >>> quality = check_cohort(Cohort(fc, table, "schaefer100-17"))
    >>> quality.table.loc[quality.table["check"] == "participants", "value"].item()
    '12'
    """
    facts, mean, n_lacking = scan_matrices(cohort)
    order = check_order(mean, cohort.parcellation)
    is_negative = _clearly_negative(facts, cohort)
    duplicates = cohort.same_matrices()
    drops = _find_drops(facts, is_negative, duplicates, cohort)
    rows = [
        _participants_row(cohort, drops),
        *_region_rows(cohort),
        *_file_rows(cohort),
        _missing_row(facts, n_lacking, cohort),
        *_region_match_rows(cohort),
        _scans_row(cohort),
        _values_row(facts, cohort),
        *_eigenvalue_rows(facts, is_negative, cohort),
        _symmetry_row(facts),
        _duplicates_row(facts, duplicates),
        _order_row(order, cohort.parcellation.name),
        *_floor_rows(facts, mean, cohort),
        _series_row(cohort),
        _motion_row(cohort),
        *column_rows(cohort.participants),
    ]
    return Quality(pd.DataFrame(rows, columns=_COLUMNS), drops, order)


def _find_drops(
    facts: pd.DataFrame, is_negative: np.ndarray, duplicates: list[np.ndarray], cohort: Cohort
) -> pd.DataFrame:
    """Who should not be used, and why."""
    first_of_group = {}
    for group in duplicates:
        for row in group[1:]:
            first_of_group[row] = group[0]
    # if most matrices are negative, the cohort as a whole is at fault, not these participants
    is_damaged = is_negative & (is_negative.mean() <= 0.5)
    drops = []
    for row, fact in enumerate(facts.to_dict("records")):
        reasons = []
        n_missing = fact["n_missing"]
        low = fact["low"]
        high = fact["high"]
        if n_missing == 1:
            reasons.append("1 region has no data")
        elif n_missing:
            reasons.append(f"{n_missing} regions have no data")
        if fact["n_not_finite"]:
            reasons.append(f"{fact['n_not_finite']} entries are not finite")
        if cohort.measure in CORRELATIONS and max(-low, high) > 1 + TOLERANCE:
            reasons.append(f"values run from {low:.3g} to {high:.3g}, expected [-1, 1]")
        if fact["asymmetry"] > TOLERANCE:
            reasons.append(f"the matrix is not symmetric (by up to {fact['asymmetry']:.3g})")
        if is_damaged[row]:
            lowest = f"smallest eigenvalue {fact['lowest']:.3g}"
            reasons.append(f"not a matrix of {in_words(cohort.measure)} ({lowest})")
        if row in first_of_group:
            other = facts["participant_id"][first_of_group[row]]
            reasons.append(f"the same matrix as participant {other}")
        if reasons:
            drops.append((fact["participant_id"], "; ".join(reasons)))
    return pd.DataFrame(drops, columns=["participant_id", "reason"])


def _participants_row(cohort: Cohort, drops: pd.DataFrame) -> Row:
    n_left = len(cohort) - len(drops)
    verdict = "ok"
    detail = ""
    if len(drops):
        verdict = "warning"
        detail = f"{len(drops)} would be dropped ({listed(drops['participant_id'], most=4)})"
    if n_left == 0:
        verdict = "not usable"
        detail = f"no participant can be used. {detail}"
    elif n_left < FEWEST:
        verdict = "warning"
        few = f"{n_left} can be used: enough to embed, too few to learn from or to evaluate."
        detail = f"{few} {detail}".strip()
    return "participants", str(len(cohort)), verdict, detail


def _region_rows(cohort: Cohort) -> Iterator[Row]:
    yield "regions", str(cohort.n_regions), "ok", cohort.parcellation.name
    sizes = pd.Series(cohort.parcellation.networks).value_counts()
    if len(sizes) == 1:
        verdict = "warning"
        detail = "all regions are in one network"
    elif sizes.min() == 1:
        verdict = "note"
        detail = f"networks of one region: {listed(sizes[sizes == 1].index, most=4)}"
    else:
        verdict = "ok"
        detail = f"{sizes.min()} to {sizes.max()} regions each"
    yield "networks", str(len(sizes)), verdict, detail


def _file_rows(cohort: Cohort) -> Iterator[Row]:
    """Whether the files are as they were made, and who was left out when they were."""
    changes = cohort.changes
    if changes:
        # a table may well be edited by hand, arrays hardly ever
        only_table = all(change.startswith("columns of") for change in changes)
        verdict = "note" if only_table else "warning"
        detail = f"since the cohort was made: {listed(changes)}. "
        detail += "Results from before do not describe it."
        yield "files", f"{len(changes)} changed", verdict, detail
    else:
        yield "files", "as made", "ok", ""
    n_excluded = len(cohort.exclusions)
    if n_excluded:  # the reasons themselves name participants and files
        detail = "exclusions.tsv says who and why"
        yield "already left out", str(n_excluded), "note", detail
    else:
        yield "already left out", "0", "ok", ""


def _missing_row(facts: pd.DataFrame, n_lacking: np.ndarray, cohort: Cohort) -> Row:
    n_participants = int((facts["n_missing"] > 0).sum())
    if not n_participants:
        return "missing data", "none", "ok", ""
    worst_first = np.argsort(-n_lacking, kind="stable")
    labels = [cohort.parcellation.labels[i] for i in worst_first if n_lacking[i]]
    remedy = "Ingest again with --missing drop-region or impute-group-mean."
    detail = f"regions without data: {listed(labels, most=4)}. {remedy}"
    value = f"{n_participants} participants, {len(labels)} regions"
    return "missing data", value, "warning", detail


def _region_match_rows(cohort: Cohort) -> Iterator[Row]:
    """How the regions of the files were matched, where ingest recorded it."""
    match = cohort.notes.get("region_match")
    if match == "size":
        detail = (
            f"no labels of the files name regions, and {cohort.parcellation.name} was taken for "
            "its number of regions alone. Ingest again with --order NAME to say which atlas it "
            "is, in which order."
        )
        yield "region match", "not confirmed", "warning", detail
    elif match == "label":
        yield "region match", "by label", "ok", ""
    elif match == "stated":
        yield "region match", "as the user stated", "ok", ""


def _scans_row(cohort: Cohort) -> Row:
    """How many files a participant has."""
    n_scans = _numbers(cohort, "n_scans", 1)
    value = "1 per participant"
    if "n_scans" in cohort.participants.columns:
        value = f"{n_scans.min():.0f} to {n_scans.max():.0f} per participant"
        value += f", {n_scans.sum():,.0f} in all"
    verdict = "ok"
    detail = ""
    if (n_scans > 1).any():
        verdict = "note"
        share = (n_scans > 1).mean()
        detail = f"{share:.0%} of the participants are averages of several scans"
    if n_scans.max() >= _MANY_SCANS:
        verdict = "warning"
        detail += ": `nerve ingest --dry-run` shows which files were taken for whose"
    return "scans", value, verdict, detail


def _numbers(cohort: Cohort, name: str, usual_value: float) -> pd.Series:
    """A column of the participants table; the usual value where nothing is known."""
    if name not in cohort.participants.columns:
        return pd.Series(usual_value, cohort.participants.index)
    return pd.to_numeric(cohort.participants[name], errors="coerce").fillna(usual_value)


def _is_average(cohort: Cohort) -> np.ndarray:
    """(n,) whether each matrix is an average of several, or has regions filled in from others."""
    is_average = _numbers(cohort, "n_scans", 1) > 1
    is_filled_in = _numbers(cohort, "n_missing_regions", 0) > 0
    return (is_average | is_filled_in).to_numpy()


def _clearly_negative(facts: pd.DataFrame, cohort: Cohort) -> np.ndarray:
    """(n,) whether each matrix cannot be what the cohort says that it is.

    An average in Fisher z is not an average of matrices: its eigenvalues go below zero by a few
    thousandths per region (-0.46 at 419 regions and two runs of 117 volumes), those of a wrong
    unfolding by a few hundredths.
    """
    limit_of_averages = min(-0.01 * cohort.n_regions, _CLEARLY_NEGATIVE)
    limits = np.where(_is_average(cohort), limit_of_averages, _CLEARLY_NEGATIVE)
    return facts["lowest"].to_numpy() < limits


def _eigenvalue_rows(facts: pd.DataFrame, is_negative: np.ndarray, cohort: Cohort) -> Iterator[Row]:
    """A matrix of correlations has no negative eigenvalue."""
    if cohort.measure not in POSITIVE:
        return
    is_below_zero = (facts["lowest"] < 0).to_numpy()
    is_unexpected = is_below_zero & ~_is_average(cohort)
    shown = is_negative if is_negative.any() else is_unexpected
    ids = listed(facts.loc[shown, "participant_id"], most=4)
    value = f"{facts['lowest'].min():.3g}"
    if not is_below_zero.any():
        value = f"none below {-ROUNDING[str(cohort.connectivity.dtype)]:g}"
        verdict = "ok"
        detail = ""
    elif is_negative.mean() > 0.5:
        verdict = "not usable"
        detail = (
            f"{is_negative.sum()} of {len(facts)} matrices cannot be {in_words(cohort.measure)} "
            f"({ids}): vectors unfolded in the wrong order, Fisher z taken for r, negative values "
            "set to zero, or damaged rows. Look at the files with `nerve ingest --dry-run`."
        )
    elif is_negative.any():
        verdict = "warning"
        detail = f"{is_negative.sum()} damaged or of another kind: {ids}"
    elif is_unexpected.any():
        verdict = "warning"
        detail = f"a little below zero, as of values rounded to two or three decimals: {ids}"
    else:
        verdict = "note"
        detail = "of averages of several scans or filled-in regions, as expected"
    yield "smallest eigenvalue", value, verdict, detail


def _values_row(facts: pd.DataFrame, cohort: Cohort) -> Row:
    low = facts["low"].min()
    high = facts["high"].max()
    share_beyond = (facts[["low", "high"]].abs().max(axis=1) > 1 + TOLERANCE).mean()
    verdict = "ok"
    detail = in_words(cohort.measure)
    if max(-low, high) < 1e-6:
        verdict = "not usable"
        detail = "all entries are zero."
    elif cohort.measure in CORRELATIONS and share_beyond > 0.5:
        verdict = "not usable"
        detail = "not correlations; Fisher z? Ingest again with --values z."
    elif cohort.measure in CORRELATIONS and (share_beyond or facts["diagonal"].max() > TOLERANCE):
        verdict = "warning"
        detail = "some matrices are not correlations with a unit diagonal."
    return "values", f"{low:.3g} to {high:.3g}", verdict, detail


def _symmetry_row(facts: pd.DataFrame) -> Row:
    n_asymmetric = int((facts["asymmetry"] > TOLERANCE).sum())
    value = f"within {facts['asymmetry'].max():.2g}"
    if n_asymmetric:
        return "symmetry", value, "warning", f"{n_asymmetric} matrices are not symmetric"
    return "symmetry", value, "ok", ""


def _duplicates_row(facts: pd.DataFrame, duplicates: list[np.ndarray]) -> Row:
    if not duplicates:
        return "duplicates", "none", "ok", ""
    groups = [" = ".join(facts["participant_id"][rows]) for rows in duplicates]
    detail = f"the same matrix under several ids: {listed(groups, most=4)}"
    return "duplicates", str(len(groups)), "warning", detail


def _order_row(order: OrderCheck, name: str) -> Row:
    value = f"within {order.within:.3f}, between {order.between:.3f}"
    if order.better:
        detail = (
            f"looks wrong: read as {order.better} the same data have a network contrast of "
            f"{order.others[order.better]:.3f} against {order.contrast:.3f} as {name}. "
            f"Ingest again with --order {order.better}."
        )
        return "region order", value, "not usable", detail
    if not order.contrast > 0:
        detail = "networks do not show in the group mean: check the order of the regions."
        return "region order", value, "warning", detail
    contrasts = [f"contrast {order.contrast:.3f}"]
    if order.others:
        others = [f"{other} would give {r:.3f}" for other, r in order.others.items()]
        contrasts.append(", ".join(others))
    return "region order", value, "ok", "; ".join(contrasts)


def _floor_rows(facts: pd.DataFrame, mean: np.ndarray, cohort: Cohort) -> Iterator[Row]:
    """What no FC of a group looks like: its mean, its networks, its distribution."""
    if cohort.measure not in CORRELATIONS:
        return
    mean_fc = float(facts["mean"].mean())
    verdict = "ok"
    detail = ""
    if mean_fc > _HIGHEST_MEAN:
        verdict = "not usable"
        detail = (
            f"expected at most {_HIGHEST_MEAN}: it looks like cosine similarities, series whose "
            "mean was not removed, or a signal that all regions share."
        )
    elif mean_fc < _LOWEST_MEAN:
        verdict = "not usable"
        detail = f"expected at least {_LOWEST_MEAN}: it looks like distances or a changed sign."
    yield "mean FC", f"{mean_fc:.3f}", verdict, detail

    shuffles = check_shuffles(mean, cohort.parcellation)
    if shuffles is not None:
        value = f"contrast {shuffles.contrast:.3f}"
        detail = f"95th percentile of {N_SHUFFLES} shuffled networks: {shuffles.high:.3f}"
        verdict = "ok"
        if not shuffles.contrast > shuffles.high:
            verdict = "not usable"
            looks = "rows in another order than the labels, or noise"
            if shuffles.contrast < shuffles.low:
                looks = "distances, which are small where FC is large"
            detail += f", which the networks must exceed: it looks like {looks}."
        yield "networks against chance", value, verdict, detail

    is_binary = bool(facts["is_binary"].mean() > 0.5)
    is_one_sided = not facts["n_negative"].any() and facts["share_small"].mean() > _ONE_SIDED
    if is_binary:
        detail = "the entries are two numbers alone: a binary (thresholded) graph, not FC."
        yield "distribution", "binary", "not usable", detail
    elif is_one_sided:
        detail = (
            f"{facts['share_small'].mean():.0%} of the entries lie between 0 and {SMALL} and none "
            "below 0, as of no correlations: it looks like mutual information, absolute values, "
            "or negative values set to 0. If it is another measure, ingest again with --measure."
        )
        yield "distribution", "no negative values", "not usable", detail
    else:
        yield "distribution", "as of correlations", "ok", ""


def _series_row(cohort: Cohort) -> Row:
    if cohort.timeseries is None:
        return "time series", "none", "ok", ""
    lengths = cohort.timeseries.lengths
    return "time series", f"{lengths.min()} to {lengths.max()} volumes", "ok", ""


def _motion_row(cohort: Cohort) -> Row:
    if "mean_fd" not in cohort.participants.columns:
        detail = "there is no column mean_fd: motion cannot be held constant"
        return "motion", "not known", "note", detail
    motion = pd.to_numeric(cohort.participants["mean_fd"], errors="coerce")
    n_moving = int((motion > _MUCH_MOTION).sum())
    n_unknown = int(motion.isna().sum())
    notes = []
    if n_moving:
        notes.append(f"{n_moving} above {_MUCH_MOTION} mm")
    if n_unknown:
        notes.append(f"{n_unknown} not known")
    verdict = "note" if notes else "ok"
    return "motion", describe_motion(cohort.participants), verdict, ", ".join(notes)
