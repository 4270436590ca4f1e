"""The columns of a participants table: covariates, targets, and what can be neither."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pandas as pd

from nerve._utils.errors import listed
from nerve._utils.numbers import in_numbers, odd_cells
from nerve._utils.privacy import FEWEST_OF_LEVEL, is_date
from nerve.data.quality.codes import ages_in_words, suspicious_codes

Row = tuple[str, str, str, str]  # check, value, verdict, detail

_COVARIATES = (
    "age", "sex", "site", "family_id", "mean_fd", "session_id", "cohort", "n_volumes", "n_scans",
    "n_missing_regions",
)  # fmt: skip
_INDEX = re.compile(r"unnamed: ?\d+|index|row(_?(number|id|names?))?|", re.IGNORECASE)
_ID = re.compile(
    r"(.*[_ .-])?(id|ids|guid|uid|eid|key)|subjectkey|subject|participant|src_subject_id",
    re.IGNORECASE,
)


_MOST = 2_000  # columns that are looked at: a table of more is not of phenotypes alone


def column_rows(participants: pd.DataFrame) -> list[Row]:
    """Describe the columns of a participants table.

    Parameters
    ----------
    participants : DataFrame

    Returns
    -------
    list of (check, value, verdict, detail)
        One row per covariate and target, with how many participants have it, and one for the
        columns that are neither.
    """
    rows = []
    neither = []
    names = participants.columns.drop("participant_id")
    for name in names[:_MOST]:
        known = participants[name].dropna()
        is_covariate = name in _COVARIATES
        reason = "" if is_covariate else _why_no_target(str(name), known)
        if reason:
            neither.append(f"{name} ({reason})")
            continue
        check = f"covariate {name}" if is_covariate else f"target {name}"
        verdict, detail = _describe(known)
        codes = suspicious_codes(known)
        ages = ages_in_words(known) if str(name).lower() == "age" else ""
        if ages:
            verdict = "warning"
            detail = f"{ages}: not numbers. Ingest again with --columns age=THEIRS."
        elif codes:
            verdict = "suspicious"
            declared = ",".join(f"{name}={code.value:g}" for code in codes)
            detail = (
                f"{listed(codes)}: missing? Ingest again with --na-values {declared}, or confirm "
                f"with `nerve evaluate … --confirmed-values {name}`."
            )
        rows.append((check, f"{len(known)} of {len(participants)}", verdict, detail))
    if neither:
        count = "1 column" if len(neither) == 1 else f"{len(neither)} columns"
        rows.append(("not targets", count, "ok", listed(neither, most=20)))
    if len(names) > _MOST:
        rows.append(("columns", f"{len(names):,}", "note", f"the first {_MOST:,} were looked at"))
    return rows


def _why_no_target(name: str, known: pd.Series) -> str:
    """Why a column cannot be a target: constant, dates, an index or ids; empty if it may be one."""
    if known.nunique() < 2:
        return "no values" if known.empty else "constant"
    counts_rows = known.dtype.kind in "iu" and len(known) > 2 and bool((np.diff(known) == 1).all())
    if _INDEX.fullmatch(name) or counts_rows:
        return "index"
    if all(is_date(value) for value in known):
        return "dates"
    if (
        known.is_unique
        and len(known) > 2
        and (_ID.fullmatch(name) or in_numbers(known).isna().all())
    ):
        return "ids"
    return ""


def _describe(known: pd.Series) -> tuple[str, str]:
    """Verdict and detail of a column: its range, its levels, or cells that are not numbers."""
    if known.empty:
        return "note", "no values"
    levels = Counter(known.tolist())
    verdict = "ok" if len(levels) > 1 else "note"
    if known.dtype.kind in "biuf" and len(levels) > 2:
        return verdict, _range(known)
    odd = odd_cells(known)
    numbers = in_numbers(known)
    if len(odd) and numbers.nunique() > 2:
        return "warning", f"{_range(numbers)}; {_describe_odd_cells(odd)}"
    # dates, and so many values that a participant has one of their own, are not printed
    if len(levels) > max(4, len(known) / 4) or any(is_date(level) for level in levels):
        return verdict, f"{len(levels)} different values"
    classes = f"{len(levels)} classes: " if len(levels) > 2 else ""
    shown = [f"{level} ({n})" for level, n in levels.most_common() if n >= FEWEST_OF_LEVEL]
    rare = len(levels) - len(shown)
    if rare:
        shown = [*shown[:4], f"{rare} of fewer than {FEWEST_OF_LEVEL} participants"]
    return verdict, classes + listed(shown, most=5 if rare else 4)


def _range(numbers: pd.Series) -> str:
    return f"{numbers.min():.4g} to {numbers.max():.4g}"


def _describe_odd_cells(odd: pd.Series) -> str:
    """The cells of a column of numbers that are not numbers, and what they do."""
    has_comma = in_numbers(odd).notna()
    parts = []
    if has_comma.any():
        parts.append(f"{has_comma.sum()} with a decimal comma")
    if not has_comma.all():
        # dates and long words could tell who the participant is
        words = [str(cell) for cell in odd[~has_comma]]
        words = ["…" if len(word) > 16 or is_date(word) else word for word in words]
        cells = [f"{word!r} ({n})" for word, n in Counter(words).most_common()]
        parts.append(f"not numbers: {listed(cells, most=6)}")
    advice = "As it stands the column is words: mend these cells or leave them empty."
    return f"{'; '.join(parts)}. {advice}"
