"""The checks of a cohort as a table: one row per check, with a verdict and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from nerve._utils.errors import listed
from nerve._utils.files import begins_with, check_replaceable_file, write_tsv
from nerve.data.cohort import Cohort, describe_motion
from nerve.data.connectivity import CORRELATIONS, in_words
from nerve.data.quality.columns import Row, column_rows
from nerve.data.quality.likeness import FEWEST, Likeness
from nerve.data.quality.matrices import POSITIVE, ROUNDING, TOLERANCE, scan_matrices
from nerve.data.quality.order import OrderCheck, check_order

MUCH_MOTION = 0.5  # mm of mean framewise displacement
MANY_SCANS = (
    5  # of one participant: more often scans of several participants that were taken for one
)
CLEARLY_NEGATIVE = (
    -0.2
)  # below what two decimals of rounding do to an eigenvalue (-0.11 at 419 regions)


@dataclass(frozen=True)
class Quality:
    """What was found.

    Parameters
    ----------
    table : DataFrame
        One row per check: check, value, verdict ("ok", "note", "warning", "not usable") and detail.
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
        """With a row that says how like a model's training cohort this one is."""
        row = (
            "like the model's",
            like.words,
            "warning" if like.differences else "ok",
            " ".join(like.differences),
        )
        return replace(
            self, table=pd.concat([self.table, pd.DataFrame([row], columns=self.table.columns)])
        )

    def write(self, path: str | Path) -> None:
        """Write checks and drops as one TSV; a participant to drop is a row of its own. No other file is replaced."""
        check_replaceable_file(path, begins_with(*self.table.columns))
        rows = self.drops.set_axis(["value", "detail"], axis=1).assign(
            check="drop", verdict="warning"
        )
        write_tsv(path, pd.concat([self.table, rows], ignore_index=True))


def check_cohort(cohort: Cohort) -> Quality:
    """Check a cohort in one pass over its matrices.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> fc = np.stack([np.corrcoef(rng.normal(size=(100, 150))) for _ in range(12)])
    >>> people = pd.DataFrame({"participant_id": [f"p{i}" for i in range(12)]})
    >>> quality = check_cohort(Cohort(fc, people, "schaefer100-17"))
    >>> quality.table.loc[quality.table["check"] == "participants", "value"].item()
    '12'
    """
    facts, mean, lacking = scan_matrices(cohort)
    order = check_order(mean, cohort.parcellation)
    negative, same = _negative(facts, cohort), cohort.same_matrices()
    drops = _drops(facts, negative, same, cohort)
    rows = [
        *_cohort_rows(cohort, drops),
        _missing_row(facts, lacking, cohort),
        *_source_rows(cohort),
        _values_row(facts, cohort),
        *_eigenvalue_rows(facts, negative, cohort),
        *_matrix_rows(facts, same),
        _order_row(order, cohort.parcellation.name),
        *_series_rows(cohort),
        *column_rows(cohort.participants),
    ]
    return Quality(
        pd.DataFrame(rows, columns=["check", "value", "verdict", "detail"]), drops, order
    )


def _drops(
    facts: pd.DataFrame, negative: np.ndarray, same: list[np.ndarray], cohort: Cohort
) -> pd.DataFrame:
    damaged = negative & (
        negative.mean() <= 0.5
    )  # of most participants it is the cohort's fault, not theirs
    first = {row: rows[0] for rows in same for row in rows[1:]}
    reasons = []
    for row, fact in enumerate(facts.to_dict("records")):
        missing, low, high = fact["n_missing"], fact["low"], fact["high"]
        beyond = cohort.measure in CORRELATIONS and max(-low, high) > 1 + TOLERANCE
        kind = (
            f"not a matrix of {in_words(cohort.measure)} (smallest eigenvalue {fact['lowest']:.3g})"
        )
        said = {
            "1 region has no data" if missing == 1 else f"{missing} regions have no data": missing,
            f"{fact['n_not_finite']} entries are not finite": fact["n_not_finite"],
            f"values run from {low:.3g} to {high:.3g}, expected [-1, 1]": beyond,
            f"the matrix is not symmetric (by up to {fact['asymmetry']:.3g})": fact["asymmetry"]
            > TOLERANCE,
            kind: damaged[row],
            f"the same matrix as participant {facts['participant_id'][first.get(row, row)]}": row
            in first,
        }
        if any(said.values()):
            reasons.append(
                (
                    fact["participant_id"],
                    "; ".join(reason for reason, holds in said.items() if holds),
                )
            )
    return pd.DataFrame(reasons, columns=["participant_id", "reason"])


def _cohort_rows(cohort: Cohort, drops: pd.DataFrame) -> Iterator[Row]:
    """Who and what there is. A table may well be edited by hand, arrays hardly ever."""
    left = len(cohort) - len(drops)
    detail = (
        f"{len(drops)} would be dropped ({listed(drops['participant_id'], most=4)})"
        if len(drops)
        else ""
    )
    verdict = "warning" if len(drops) or left < FEWEST else "ok"
    if not left:
        verdict, detail = "not usable", f"nobody can be used. {detail}"
    elif left < FEWEST:
        detail = f"{left} can be used: enough to embed, too few to learn from or to evaluate. {detail}".strip()
    yield "participants", str(len(cohort)), verdict, detail
    yield "regions", str(cohort.n_regions), "ok", cohort.parcellation.name
    sizes = pd.Series(cohort.parcellation.networks).value_counts()
    verdict, detail = "ok", f"{sizes.min()} to {sizes.max()} regions each"
    if len(sizes) == 1:
        verdict, detail = "warning", "all regions are in one network"
    elif sizes.min() == 1:
        verdict, detail = (
            "note",
            f"networks of one region: {listed(sizes[sizes == 1].index, most=4)}",
        )
    yield "networks", str(len(sizes)), verdict, detail
    if changes := cohort.changes:
        arrays = any(not change.startswith("columns of") for change in changes)
        detail = (
            f"since the cohort was made: {listed(changes)}. Results from before do not describe it."
        )
        yield "files", f"{len(changes)} changed", "warning" if arrays else "note", detail
    else:
        yield "files", "as made", "ok", ""
    n = len(cohort.exclusions)  # the reasons themselves name participants and files
    yield (
        "already left out",
        str(n),
        "note" if n else "ok",
        "exclusions.tsv says who and why" if n else "",
    )


def _missing_row(facts: pd.DataFrame, lacking: np.ndarray, cohort: Cohort) -> Row:
    people = int((facts["n_missing"] > 0).sum())
    if not people:
        return "missing data", "none", "ok", ""
    worst = [
        cohort.parcellation.labels[i] for i in np.argsort(-lacking, kind="stable") if lacking[i]
    ]
    remedy = "Ingest again with --missing drop-region or impute-group-mean."
    detail = f"regions without data: {listed(worst, most=4)}. {remedy}"
    return "missing data", f"{people} participants, {len(worst)} regions", "warning", detail


def _source_rows(cohort: Cohort) -> Iterator[Row]:
    """How the regions of the files were matched, where ingest recorded it, and how many files a participant has."""
    match = cohort.notes.get("region_match")
    if match == "size":
        detail = f"the files have no labels, and {cohort.parcellation.name} was taken for its number of regions alone. "
        detail += "Ingest again with --order NAME to say which atlas it is, in which order."
        yield "region match", "not confirmed", "warning", detail
    elif match in ("label", "stated"):
        yield "region match", "by label" if match == "label" else "as the user stated", "ok", ""
    scans = _numbers(cohort, "n_scans", 1)
    value, verdict, detail = f"{scans.min():.0f} to {scans.max():.0f} per participant", "ok", ""
    if (scans > 1).any():
        verdict, detail = (
            "note",
            f"{(scans > 1).mean():.0%} of the participants are averages of several scans",
        )
    if scans.max() >= MANY_SCANS:
        verdict = "warning"
        detail += ": `nerve ingest --dry-run` shows which files were taken for whose"
    known = "n_scans" in cohort.participants.columns
    yield (
        "scans",
        f"{value}, {scans.sum():,.0f} in all" if known else "1 per participant",
        verdict,
        detail,
    )


def _numbers(cohort: Cohort, name: str, usual: float) -> pd.Series:
    """A column of the participants table; the usual value where nothing is known."""
    column = cohort.participants.get(name, pd.Series(usual, cohort.participants.index))
    return pd.to_numeric(column, errors="coerce").fillna(usual)


def _averaged(cohort: Cohort) -> np.ndarray:
    """Mask of the participants whose matrix is an average of several, or has regions filled in from others."""
    return (
        (_numbers(cohort, "n_scans", 1) > 1) | (_numbers(cohort, "n_missing_regions", 0) > 0)
    ).to_numpy()


def _negative(facts: pd.DataFrame, cohort: Cohort) -> np.ndarray:
    """Mask of the participants whose matrix cannot be what the cohort says that it is.

    An average in Fisher z is not an average of matrices: its eigenvalues go below zero by a few thousandths per region
    (-0.46 at 419 regions and two runs of 117 volumes), a wrong unfolding's by a few hundredths.
    """
    limit = np.where(
        _averaged(cohort), np.minimum(-0.01 * cohort.n_regions, CLEARLY_NEGATIVE), CLEARLY_NEGATIVE
    )
    return facts["lowest"].to_numpy() < limit


def _eigenvalue_rows(facts: pd.DataFrame, negative: np.ndarray, cohort: Cohort) -> Iterator[Row]:
    """A matrix of correlations has no negative eigenvalue."""
    if cohort.measure not in POSITIVE:
        return
    below = (facts["lowest"] < 0).to_numpy()
    unusual = below & ~_averaged(cohort)
    who = listed(facts.loc[negative if negative.any() else unusual, "participant_id"], most=4)
    value = f"{facts['lowest'].min():.3g}"
    if not below.any():
        value, verdict, detail = (
            f"none below {-ROUNDING[str(cohort.connectivity.dtype)]:g}",
            "ok",
            "",
        )
    elif negative.mean() > 0.5:
        verdict = "not usable"
        causes = "vectors unfolded in the wrong order, Fisher z taken for r, negative values set to zero, or damaged rows"
        detail = f"{negative.sum()} of {len(facts)} matrices cannot be {in_words(cohort.measure)} ({who}): {causes}. "
        detail += "Look at the files with `nerve ingest --dry-run`."
    elif negative.any():
        verdict, detail = "warning", f"{negative.sum()} damaged or of another kind: {who}"
    elif unusual.any():
        verdict, detail = (
            "warning",
            f"a little below zero, as of values rounded to two or three decimals: {who}",
        )
    else:
        verdict, detail = "note", "of averages of several scans or filled-in regions, as expected"
    yield "smallest eigenvalue", value, verdict, detail


def _values_row(facts: pd.DataFrame, cohort: Cohort) -> Row:
    low, high = facts["low"].min(), facts["high"].max()
    beyond = (facts[["low", "high"]].abs().max(axis=1) > 1 + TOLERANCE).mean()
    verdict, detail = "ok", in_words(cohort.measure)
    if max(-low, high) < 1e-6:
        verdict, detail = "not usable", "all entries are zero."
    elif cohort.measure in CORRELATIONS and beyond > 0.5:
        verdict, detail = "not usable", "not correlations; Fisher z? Ingest again with --values z."
    elif cohort.measure in CORRELATIONS and (beyond or facts["diagonal"].max() > TOLERANCE):
        verdict, detail = "warning", "some matrices are not correlations with a unit diagonal."
    return "values", f"{low:.3g} to {high:.3g}", verdict, detail


def _matrix_rows(facts: pd.DataFrame, same: list[np.ndarray]) -> Iterator[Row]:
    bad = int((facts["asymmetry"] > TOLERANCE).sum())
    value, detail = (
        f"within {facts['asymmetry'].max():.2g}",
        f"{bad} matrices are not symmetric" if bad else "",
    )
    yield "symmetry", value, "warning" if bad else "ok", detail
    groups = [" = ".join(facts["participant_id"][rows]) for rows in same]
    detail = f"the same matrix under several ids: {listed(groups, most=4)}" if groups else ""
    yield "duplicates", str(len(groups) or "none"), "warning" if groups else "ok", detail


def _order_row(order: OrderCheck, name: str) -> Row:
    verdict = "ok"
    others = ", ".join(
        f"{other} would give {contrast:.3f}" for other, contrast in order.others.items()
    )
    detail = f"contrast {order.contrast:.3f}" + (f"; {others}" if others else "")
    if order.better:
        verdict = "not usable"
        better = f"read as {order.better} the same data have a network contrast of {order.others[order.better]:.3f}"
        detail = f"looks wrong: {better} against {order.contrast:.3f} as {name}. Ingest again with --order {order.better}."
    elif not order.contrast > 0:
        verdict, detail = (
            "warning",
            "networks do not show in the group mean: check the order of the regions.",
        )
    return (
        "region order",
        f"within {order.within:.3f}, between {order.between:.3f}",
        verdict,
        detail,
    )


def _series_rows(cohort: Cohort) -> Iterator[Row]:
    lengths = None if cohort.timeseries is None else cohort.timeseries.lengths
    yield (
        "time series",
        "none" if lengths is None else f"{lengths.min()} to {lengths.max()} volumes",
        "ok",
        "",
    )
    if "mean_fd" not in cohort.participants.columns:
        yield (
            "motion",
            "not known",
            "note",
            "there is no column mean_fd: motion cannot be held constant",
        )
        return
    motion = pd.to_numeric(cohort.participants["mean_fd"], errors="coerce")
    much, unknown = int((motion > MUCH_MOTION).sum()), int(motion.isna().sum())
    said = [f"{much} above {MUCH_MOTION} mm"] * bool(much) + [f"{unknown} not known"] * bool(
        unknown
    )
    yield "motion", describe_motion(cohort.participants), "note" if said else "ok", ", ".join(said)
