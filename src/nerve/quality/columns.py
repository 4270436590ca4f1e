"""The columns of a participants table: covariates, targets, and what can be neither."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import listed
from nerve.numbers import MOSTLY, in_numbers

Row = tuple[str, str, str, str]  # check, value, verdict, detail

_COVARIATES = (
    "age", "sex", "site", "family_id", "mean_fd", "session_id", "cohort", "n_volumes", "n_scans", "n_missing_regions",
)  # fmt: skip
_DATE = re.compile(r"\b(?:19|20)\d\d[-/.]?[01]\d[-/.]?[0-3]\d|\b[0-3]?\d[-/.][0-3]?\d[-/.](?:19|20)\d\d\b")
_INDEX = re.compile(r"unnamed: ?\d+|index|row(_?(number|id|names?))?|", re.IGNORECASE)
_ID = re.compile(r"(.*[_ .-])?(id|ids|guid|uid|eid|key)|subjectkey|subject|participant|src_subject_id", re.IGNORECASE)


_MOST = 2_000  # columns that are looked at: a table of more is not of phenotypes alone


def column_rows(participants: pd.DataFrame) -> list[Row]:
    """One row per covariate and target with how many participants have it, and one for the columns that are neither."""
    rows, neither = [], []
    names = participants.columns.drop("participant_id")
    for name in names[:_MOST]:
        known = participants[name].dropna()
        why = "" if name in _COVARIATES else _no_target(str(name), known)
        if why:
            neither.append(f"{name} ({why})")
            continue
        kind = "covariate" if name in _COVARIATES else "target"
        verdict, detail = _described(known)
        rows.append((f"{kind} {name}", f"{len(known)} of {len(participants)}", verdict, detail))
    if neither:
        count = "1 column" if len(neither) == 1 else f"{len(neither)} columns"
        rows.append(("not targets", count, "ok", listed(neither, most=20)))
    if len(names) > _MOST:
        rows.append(("columns", f"{len(names):,}", "note", f"the first {_MOST:,} were looked at"))
    return rows


def _no_target(name: str, known: pd.Series) -> str:
    """Why nothing can be predicted of a column: constant, dates, an index or ids; empty if it may be a target."""
    if known.nunique() < 2:
        return "no values" if known.empty else "constant"
    if _INDEX.fullmatch(name) or _counts_rows(known):
        return "index"
    if all(_DATE.search(str(value)) for value in known):
        return "dates"
    each_its_own = known.is_unique and len(known) > 2
    if each_its_own and (_ID.fullmatch(name) or in_numbers(known).isna().all()):
        return "ids"
    return ""


def _counts_rows(known: pd.Series) -> bool:
    """Whether whole numbers go up by one from row to row."""
    return known.dtype.kind in "iu" and len(known) > 2 and bool((np.diff(known) == 1).all())


def _described(known: pd.Series) -> tuple[str, str]:
    """Verdict and detail of a column: its range, its levels, or the cells that are not numbers where most are."""
    if known.empty:
        return "note", "no values"
    levels = Counter(known.tolist())
    verdict = "ok" if len(levels) > 1 else "note"
    if known.dtype.kind in "biuf" and len(levels) > 2:
        return verdict, _range(known)
    numbers = in_numbers(known)
    odd = known[numbers.isna()]
    if known.dtype.kind not in "biuf" and numbers.notna().mean() >= MOSTLY and numbers.nunique() > 2:
        return "warning", f"{_range(numbers)}; {_oddities(known, odd)}"
    if _may_identify(levels, len(known)):
        return verdict, f"{len(levels)} different values"
    classes = f"{len(levels)} classes: " if len(levels) > 2 else ""
    return verdict, classes + listed((f"{level} ({n})" for level, n in levels.most_common()), most=4)


def _range(numbers: pd.Series) -> str:
    return f"{numbers.min():.4g} to {numbers.max():.4g}"


def _oddities(known: pd.Series, odd: pd.Series) -> str:
    """The cells of a column of numbers that are not numbers, and what they do."""
    commas = int(known.astype(str).str.contains(",", regex=False).sum() - odd.astype(str).str.contains(",").sum())
    said = [f"{commas} with a decimal comma"] * bool(commas)
    if len(odd):
        cells = listed((f"{cell!r} ({n})" for cell, n in Counter(map(_brief, odd)).most_common()), most=6)
        said.append(f"not numbers: {cells}")
    return f"{'; '.join(said)}. As it stands the column is words: mend these cells or leave them empty."


def _brief(cell: Any) -> str:
    """A cell as it is printed: dates and long words could tell who the participant is."""
    word = str(cell)
    return "…" if len(word) > 16 or _DATE.search(word) else word


def _may_identify(levels: Counter[Any], n_known: int) -> bool:
    """Whether values are dates, or so many that a participant has one of their own: these are not printed."""
    return len(levels) > max(4, n_known / 4) or any(_DATE.search(str(level)) for level in levels)
