"""The checks of a cohort as a table: one row a check, with a verdict and what to do."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import listed
from nerve.cohort import Cohort
from nerve.files import begins_with, check_replaceable_file, write_tsv
from nerve.numbers import odd_cells
from nerve.quality.matrices import TOLERANCE, scan_matrices
from nerve.quality.order import OrderCheck, check_order

_DATE = re.compile(r"\b(?:19|20)\d\d[-/.]?[01]\d[-/.]?[0-3]\d|\b[0-3]?\d[-/.][0-3]?\d[-/.](?:19|20)\d\d\b")
FEWEST = 10  # people below which nothing can be learned or evaluated
MUCH_MOTION = 0.5  # mm of mean framewise displacement
_COVARIATES = (
    "age", "sex", "site", "family_id", "mean_fd", "session_id", "cohort", "n_volumes", "n_scans", "n_missing_regions",
)  # fmt: skip


@dataclass(frozen=True)
class Quality:
    """What was found.

    Parameters
    ----------
    table : DataFrame
        One row a check: check, value, verdict ("ok", "note", "warning", "unusable") and detail.
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
        """Whether no check says "unusable"."""
        return not (self.table["verdict"] == "unusable").any()

    def write(self, path: str | Path) -> None:
        """Write checks and drops as one TSV; a participant to drop is a row of its own. No other file is replaced."""
        check_replaceable_file(path, begins_with(*self.table.columns))
        rows = pd.DataFrame(
            {
                "check": "drop",
                "value": self.drops["participant_id"],
                "verdict": "warning",
                "detail": self.drops["reason"],
            }
        )
        write_tsv(path, pd.concat([self.table, rows], ignore_index=True))


def check_cohort(cohort: Cohort, *, progress: bool = False) -> Quality:
    """Check a cohort in one pass over its matrices, with a progress bar on standard error if asked for.

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
    drops = _drops(facts)
    rows = [
        _participants_row(cohort, drops),
        ("regions", str(cohort.n_regions), "ok", cohort.parcellation.name),
        ("networks", str(cohort.parcellation.n_networks), *_networks(cohort)),
        _files_row(cohort),
        ("already left out", str(len(cohort.exclusions)), "note" if len(cohort.exclusions) else "ok", _reasons(cohort)),
        _missing_row(facts, lacking, cohort),
        _values_row(facts),
        _symmetry_row(facts),
        _duplicates_row(facts),
        _order_row(order, cohort),
        _series_row(cohort),
        _motion_row(cohort),
        *_column_rows(cohort),
    ]
    return Quality(pd.DataFrame(rows, columns=["check", "value", "verdict", "detail"]), drops, order)


Row = tuple[str, str, str, str]


def _drops(facts: pd.DataFrame) -> pd.DataFrame:
    first = facts.drop_duplicates("digest").set_index("digest")["participant_id"]
    reasons = []
    for fact in facts.to_dict("records"):
        said = []
        if fact["n_missing"]:
            said.append(f"{fact['n_missing']} regions have no data")
        if fact["n_not_finite"]:
            said.append(f"{fact['n_not_finite']} entries are not finite")
        if max(-fact["low"], fact["high"]) > 1 + TOLERANCE:
            said.append(f"values run from {fact['low']:.3g} to {fact['high']:.3g}, expected [-1, 1]")
        if fact["asymmetry"] > TOLERANCE:
            said.append(f"the matrix is not symmetric (by up to {fact['asymmetry']:.3g})")
        if first[fact["digest"]] != fact["participant_id"]:
            said.append(f"the same matrix as participant {first[fact['digest']]}")
        if said:
            reasons.append((fact["participant_id"], "; ".join(said)))
    return pd.DataFrame(reasons, columns=["participant_id", "reason"])


def _participants_row(cohort: Cohort, drops: pd.DataFrame) -> Row:
    left = len(cohort) - len(drops)
    detail = f"{len(drops)} would be dropped ({listed(drops['participant_id'], most=4)})" if len(drops) else ""
    if not left:
        return "participants", str(len(cohort)), "unusable", f"nobody can be used. {detail}"
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


def _reasons(cohort: Cohort) -> str:
    """Where to look; the reasons themselves name people and files."""
    return "exclusions.tsv says who and why" if len(cohort.exclusions) else ""


def _files_row(cohort: Cohort) -> Row:
    """What was changed by hand: a table may well be edited, arrays hardly ever."""
    changes = cohort.changes
    if not changes:
        return "files", "as made", "ok", ""
    arrays = any(not change.startswith("columns of") for change in changes)
    detail = f"since the cohort was made: {listed(changes)}. Results from before do not describe it."
    return "files", f"{len(changes)} changed", "warning" if arrays else "note", detail


def _missing_row(facts: pd.DataFrame, lacking: np.ndarray, cohort: Cohort) -> Row:
    people = int((facts["n_missing"] > 0).sum())
    if not people:
        return "missing data", "none", "ok", ""
    worst = [cohort.parcellation.labels[i] for i in np.argsort(-lacking, kind="stable") if lacking[i]]
    detail = (
        f"regions without data: {listed(worst, most=4)}. Ingest again with --missing drop-region or impute-group-mean."
    )
    return "missing data", f"{people} participants, {len(worst)} regions", "warning", detail


def _values_row(facts: pd.DataFrame) -> Row:
    low, high = facts["low"].min(), facts["high"].max()
    value = f"{low:.3g} to {high:.3g}"
    beyond = (facts[["low", "high"]].abs().max(axis=1) > 1 + TOLERANCE).mean()
    if beyond > 0.5:
        return "values", value, "unusable", "not correlations; Fisher z? Ingest again with --values z."
    if max(-low, high) < 1e-6:
        return "values", value, "unusable", "all entries are zero."
    if beyond or facts["diagonal"].max() > TOLERANCE:
        return "values", value, "warning", "some matrices are not correlations with a unit diagonal."
    return "values", value, "ok", "correlations (r)"


def _symmetry_row(facts: pd.DataFrame) -> Row:
    worst = facts["asymmetry"].max()
    bad = int((facts["asymmetry"] > TOLERANCE).sum())
    return (
        "symmetry",
        f"within {worst:.2g}",
        "warning" if bad else "ok",
        f"{bad} matrices are not symmetric" if bad else "",
    )


def _duplicates_row(facts: pd.DataFrame) -> Row:
    twice = facts[facts.duplicated("digest", keep=False)]
    if twice.empty:
        return "duplicates", "none", "ok", ""
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
        return "region order", value, "unusable", detail
    if not order.contrast > 0:
        return (
            "region order",
            value,
            "warning",
            "networks do not show in the group mean: check the order of the regions.",
        )
    others = ", ".join(f"{other} would give {contrast:.3f}" for other, contrast in order.others.items())
    return "region order", value, "ok", f"contrast {order.contrast:.3f}" + (f"; {others}" if others else "")


def _series_row(cohort: Cohort) -> Row:
    if cohort.timeseries is None:
        return "time series", "none", "ok", ""
    lengths = cohort.timeseries.lengths
    return "time series", f"{lengths.min()} to {lengths.max()} volumes", "ok", ""


def _motion_row(cohort: Cohort) -> Row:
    if "mean_fd" not in cohort.participants.columns:
        return "motion", "not known", "note", "there is no column mean_fd: motion cannot be held constant"
    motion = pd.to_numeric(cohort.participants["mean_fd"], errors="coerce")
    value = f"median {motion.median():.3f} mm, largest {motion.max():.3f}"
    much, unknown = int((motion > MUCH_MOTION).sum()), int(motion.isna().sum())
    said = [f"{much} above {MUCH_MOTION} mm"] * bool(much) + [f"{unknown} not known"] * bool(unknown)
    return "motion", value, "note" if said else "ok", ", ".join(said)


def _may_identify(levels: Counter[Any], n_known: int) -> bool:
    """Whether values are dates, or so many that a person has one of their own: these are not printed."""
    return len(levels) > max(4, n_known / 4) or any(_DATE.search(str(level)) for level in levels)


def _column_rows(cohort: Cohort) -> list[Row]:
    """Targets and covariates: how many people have each."""
    rows = []
    for name in cohort.participants.columns.drop("participant_id"):
        values = cohort.participants[name].to_numpy()
        known = values[~pd.isna(values)]
        levels = Counter(known.tolist())
        kind = "covariate" if name in _COVARIATES else "target"
        if known.dtype.kind in "biuf" and len(levels) > 2:
            detail = f"{known.min():.4g} to {known.max():.4g}"
        elif _may_identify(levels, len(known)):
            detail = f"{len(levels)} different values"
        else:
            detail = listed((f"{level} ({n})" for level, n in levels.most_common()), most=4)
        verdict = "ok" if len(levels) > 1 else "note"
        odd = odd_cells(cohort.participants[name])
        if len(odd):
            shown = [repr(value) for value in dict.fromkeys(odd) if not _DATE.search(str(value))]
            detail, verdict = f"numbers, but {len(odd)} cells are not: {listed(shown, most=3)}", "warning"
        rows.append((f"{kind} {name}", f"{len(known)} of {len(values)}", verdict, detail or "no values"))
    return rows
