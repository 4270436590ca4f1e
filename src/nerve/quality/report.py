"""The checks of a cohort as a table: one row a check, with a verdict and what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from nerve.checks import listed
from nerve.cohort import Cohort
from nerve.files import begins_with, check_replaceable_file, write_tsv
from nerve.measures import CORRELATIONS, in_words
from nerve.quality.columns import Row, column_rows
from nerve.quality.likeness import Likeness
from nerve.quality.matrices import POSITIVE, ROUNDING, TOLERANCE, scan_matrices
from nerve.quality.order import OrderCheck, check_order

FEWEST = 10  # participants below which nothing can be learned or evaluated
MUCH_MOTION = 0.5  # mm of mean framewise displacement
MANY_SCANS = 5  # of one participant: more often scans of several participants that were taken for one
CLEARLY_NEGATIVE = -0.2  # below what two decimals of rounding do to an eigenvalue (-0.11 at 419 regions)


@dataclass(frozen=True)
class Quality:
    """What was found.

    Parameters
    ----------
    table : DataFrame
        One row a check: check, value, verdict ("ok", "note", "warning", "not usable") and detail.
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
        row = ("like the model's", like.words, "warning" if like.differences else "ok", " ".join(like.differences))
        return replace(self, table=pd.concat([self.table, pd.DataFrame([row], columns=self.table.columns)]))

    def write(self, path: str | Path) -> None:
        """Write checks and drops as one TSV; a participant to drop is a row of its own. No other file is replaced."""
        check_replaceable_file(path, begins_with(*self.table.columns))
        rows = self.drops.set_axis(["value", "detail"], axis=1).assign(check="drop", verdict="warning")
        write_tsv(path, pd.concat([self.table, rows], ignore_index=True))


def check_cohort(cohort: Cohort, *, progress: bool = False) -> Quality:
    """Check a cohort in one pass over its matrices, with progress on standard error if asked for.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> fc = np.stack([np.corrcoef(rng.normal(size=(100, 150))) for _ in range(12)])
    >>> people = pd.DataFrame({"participant_id": [f"p{i}" for i in range(12)]})
    >>> quality = check_cohort(Cohort(fc, people, "schaefer100-17"))
    >>> quality.table.loc[quality.table["check"] == "participants", "value"].item()
    '12'
    """
    facts, mean, lacking = scan_matrices(cohort, progress)
    order = check_order(mean, cohort.parcellation)
    drops = _drops(facts, cohort)
    rows = [
        _participants_row(cohort, drops),
        ("regions", str(cohort.n_regions), "ok", cohort.parcellation.name),
        ("networks", str(cohort.parcellation.n_networks), *_networks(cohort)),
        _files_row(cohort),
        _exclusions_row(cohort),
        _missing_row(facts, lacking, cohort),
        *_match_rows(cohort),
        _scans_row(cohort),
        _values_row(facts, cohort),
        *_eigenvalue_rows(facts, cohort),
        _symmetry_row(facts),
        _duplicates_row(facts),
        _order_row(order, cohort),
        _series_row(cohort),
        _motion_row(cohort),
        *column_rows(cohort.participants),
    ]
    return Quality(pd.DataFrame(rows, columns=["check", "value", "verdict", "detail"]), drops, order)


def _drops(facts: pd.DataFrame, cohort: Cohort) -> pd.DataFrame:
    correlations = cohort.measure in CORRELATIONS
    negative = _negative(facts, cohort)
    damaged = negative & (negative.mean() <= 0.5)  # of most participants it is the cohort's fault, not theirs
    first = facts.drop_duplicates("digest").set_index("digest")["participant_id"]
    reasons = []
    for fact, is_damaged in zip(facts.to_dict("records"), damaged, strict=True):
        said = []
        if fact["n_missing"]:
            said.append(
                "1 region has no data" if fact["n_missing"] == 1 else f"{fact['n_missing']} regions have no data"
            )
        if fact["n_not_finite"]:
            said.append(f"{fact['n_not_finite']} entries are not finite")
        if correlations and max(-fact["low"], fact["high"]) > 1 + TOLERANCE:
            said.append(f"values run from {fact['low']:.3g} to {fact['high']:.3g}, expected [-1, 1]")
        if fact["asymmetry"] > TOLERANCE:
            said.append(f"the matrix is not symmetric (by up to {fact['asymmetry']:.3g})")
        if is_damaged:
            said.append(f"not a matrix of {in_words(cohort.measure)} (smallest eigenvalue {fact['lowest']:.3g})")
        if first[fact["digest"]] != fact["participant_id"]:
            said.append(f"the same matrix as participant {first[fact['digest']]}")
        if said:
            reasons.append((fact["participant_id"], "; ".join(said)))
    return pd.DataFrame(reasons, columns=["participant_id", "reason"])


def _fine(check: str, value: str = "none") -> Row:
    return check, value, "ok", ""


def _participants_row(cohort: Cohort, drops: pd.DataFrame) -> Row:
    left = len(cohort) - len(drops)
    detail = f"{len(drops)} would be dropped ({listed(drops['participant_id'], most=4)})" if len(drops) else ""
    if not left:
        return "participants", str(len(cohort)), "not usable", f"nobody can be used. {detail}"
    if left < FEWEST:
        detail = f"{left} can be used: enough to embed, too few to learn from or to evaluate. {detail}".strip()
    return "participants", str(len(cohort)), "warning" if len(drops) or left < FEWEST else "ok", detail


def _networks(cohort: Cohort) -> tuple[str, str]:
    sizes = pd.Series(cohort.parcellation.networks).value_counts()
    small = sizes[sizes < 2]
    if len(sizes) == 1:
        return "warning", "all regions are in one network"
    if len(small):
        return "note", f"networks of one region: {listed(small.index, most=4)}"
    return "ok", f"{sizes.min()} to {sizes.max()} regions each"


def _exclusions_row(cohort: Cohort) -> Row:
    """How many, and where to look; the reasons themselves name participants and files."""
    n = len(cohort.exclusions)
    return (
        ("already left out", str(n), "note", "exclusions.tsv says who and why") if n else _fine("already left out", "0")
    )


def _files_row(cohort: Cohort) -> Row:
    """What was changed by hand: a table may well be edited, arrays hardly ever."""
    changes = cohort.changes
    if not changes:
        return _fine("files", "as made")
    arrays = any(not change.startswith("columns of") for change in changes)
    detail = f"since the cohort was made: {listed(changes)}. Results from before do not describe it."
    return "files", f"{len(changes)} changed", "warning" if arrays else "note", detail


def _missing_row(facts: pd.DataFrame, lacking: np.ndarray, cohort: Cohort) -> Row:
    people = int((facts["n_missing"] > 0).sum())
    if not people:
        return _fine("missing data")
    worst = [cohort.parcellation.labels[i] for i in np.argsort(-lacking, kind="stable") if lacking[i]]
    detail = (
        f"regions without data: {listed(worst, most=4)}. Ingest again with --missing drop-region or impute-group-mean."
    )
    return "missing data", f"{people} participants, {len(worst)} regions", "warning", detail


def _match_rows(cohort: Cohort) -> list[Row]:
    """How the regions of the files were matched with those of the parcellation, where ingest recorded it."""
    match = cohort.notes.get("region_match")
    if match == "size":
        detail = (
            f"the files have no labels, and {cohort.parcellation.name} was taken for its number of regions alone. "
            "Ingest again with --order NAME to say which atlas it is, in which order."
        )
        return [("region match", "not confirmed", "warning", detail)]
    said = {"label": "by label", "stated": "as the user stated"}
    return [_fine("region match", said[match])] if match in said else []


def _scans_row(cohort: Cohort) -> Row:
    """Files per participant, and who is an average of several."""
    if "n_scans" not in cohort.participants.columns:
        return "scans", "1 per participant", "ok", ""
    scans = pd.to_numeric(cohort.participants["n_scans"], errors="coerce").fillna(1)
    several = scans > 1
    value = f"{scans.min():.0f} to {scans.max():.0f} per participant, {scans.sum():,.0f} in all"
    if not several.any():
        return "scans", value, "ok", ""
    detail = f"{several.mean():.0%} of the participants are averages of several scans"
    if scans.max() < MANY_SCANS:
        return "scans", value, "note", detail
    return "scans", value, "warning", f"{detail}: `nerve ingest --dry-run` shows which files were taken for whose"


def _averaged(cohort: Cohort) -> np.ndarray:
    """Mask of the participants whose matrix is an average of several, or has regions filled in from others."""
    mask = np.zeros(len(cohort), bool)
    for name, usual in (("n_scans", 1), ("n_missing_regions", 0)):
        if name in cohort.participants.columns:
            mask |= (pd.to_numeric(cohort.participants[name], errors="coerce").fillna(usual) > usual).to_numpy()
    return mask


def _negative(facts: pd.DataFrame, cohort: Cohort) -> np.ndarray:
    """Mask of the participants whose matrix cannot be what the cohort says that it is.

    An average in Fisher z is not an average of matrices: its eigenvalues go below zero by a few thousandths per region
    (-0.46 at 419 regions and two runs of 117 volumes), a wrong unfolding's by a few hundredths.
    """
    limit = np.where(_averaged(cohort), np.minimum(-0.01 * cohort.n_regions, CLEARLY_NEGATIVE), CLEARLY_NEGATIVE)
    return facts["lowest"].to_numpy() < limit


def _eigenvalue_rows(facts: pd.DataFrame, cohort: Cohort) -> list[Row]:
    """A matrix of correlations has no negative eigenvalue."""
    if cohort.measure not in POSITIVE:
        return []
    lowest, negative = facts["lowest"], _negative(facts, cohort)
    rounding = ROUNDING[str(cohort.connectivity.dtype)]
    if not (lowest < 0).any():
        return [("smallest eigenvalue", f"none below {-rounding:g}", "ok", "")]
    value = f"{lowest.min():.3g}"
    who = listed(facts.loc[negative, "participant_id"], most=4)
    if negative.mean() > 0.5:
        detail = (
            f"{negative.sum()} of {len(facts)} matrices cannot be {in_words(cohort.measure)} ({who}): vectors unfolded "
            "in the wrong order, Fisher z taken for r, negative values set to zero, or damaged rows. Look at the files "
            "with `nerve ingest --dry-run`."
        )
        return [("smallest eigenvalue", value, "not usable", detail)]
    if negative.any():
        return [("smallest eigenvalue", value, "warning", f"{negative.sum()} damaged or of another kind: {who}")]
    mild = lowest < 0
    if (mild & ~_averaged(cohort)).any():
        some = listed(facts.loc[mild & ~_averaged(cohort), "participant_id"], most=4)
        detail = f"a little below zero, as of values rounded to two or three decimals: {some}"
        return [("smallest eigenvalue", value, "warning", detail)]
    return [("smallest eigenvalue", value, "note", "of averages of several scans or filled-in regions, as expected")]


def _values_row(facts: pd.DataFrame, cohort: Cohort) -> Row:
    low, high = facts["low"].min(), facts["high"].max()
    value = f"{low:.3g} to {high:.3g}"
    beyond = (facts[["low", "high"]].abs().max(axis=1) > 1 + TOLERANCE).mean()
    if max(-low, high) < 1e-6:
        return "values", value, "not usable", "all entries are zero."
    if cohort.measure not in CORRELATIONS:
        return "values", value, "ok", in_words(cohort.measure)
    if beyond > 0.5:
        return "values", value, "not usable", "not correlations; Fisher z? Ingest again with --values z."
    if beyond or facts["diagonal"].max() > TOLERANCE:
        return "values", value, "warning", "some matrices are not correlations with a unit diagonal."
    return "values", value, "ok", in_words(cohort.measure)


def _symmetry_row(facts: pd.DataFrame) -> Row:
    bad, value = int((facts["asymmetry"] > TOLERANCE).sum()), f"within {facts['asymmetry'].max():.2g}"
    return ("symmetry", value, "warning", f"{bad} matrices are not symmetric") if bad else _fine("symmetry", value)


def _duplicates_row(facts: pd.DataFrame) -> Row:
    twice = facts[facts.duplicated("digest", keep=False)]
    if twice.empty:
        return _fine("duplicates")
    groups = twice.groupby("digest", sort=False)["participant_id"].agg(" = ".join)
    return "duplicates", str(len(groups)), "warning", f"the same matrix under several ids: {listed(groups, most=4)}"


def _order_row(order: OrderCheck, cohort: Cohort) -> Row:
    value = f"within {order.within:.3f}, between {order.between:.3f}"
    name = cohort.parcellation.name
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
    others = ", ".join(f"{other} would give {contrast:.3f}" for other, contrast in order.others.items())
    return "region order", value, "ok", f"contrast {order.contrast:.3f}" + (f"; {others}" if others else "")


def _series_row(cohort: Cohort) -> Row:
    if cohort.timeseries is None:
        return _fine("time series")
    lengths = cohort.timeseries.lengths
    return _fine("time series", f"{lengths.min()} to {lengths.max()} volumes")


def _motion_row(cohort: Cohort) -> Row:
    if "mean_fd" not in cohort.participants.columns:
        return "motion", "not known", "note", "there is no column mean_fd: motion cannot be held constant"
    motion = pd.to_numeric(cohort.participants["mean_fd"], errors="coerce")
    value = f"median {motion.median():.3f} mm, largest {motion.max():.3f}"
    much, unknown = int((motion > MUCH_MOTION).sum()), int(motion.isna().sum())
    said = [f"{much} above {MUCH_MOTION} mm"] * bool(much) + [f"{unknown} not known"] * bool(unknown)
    return "motion", value, "note" if said else "ok", ", ".join(said)
