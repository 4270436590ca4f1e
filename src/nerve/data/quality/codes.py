"""Cells that look like numbers and are not: codes for missing values, ages in words (`8y1m`)."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, listed, problem
from nerve._utils.numbers import in_numbers

# 7, 88, 999, -9, -99 …: what programs and questionnaires write for missing, refused, not known
_CODE = re.compile(r"-?(?:7+|8+|9+)")
_CLOSEST = 4.0  # a code stands at least this far from every other value …
_FAR = 10.0  # … and a number that is no usual code this many times the range of the others
_MOSTLY = 0.5  # share of the cells from which on a column of ages in words is refused
_WITH_MONTHS = re.compile(
    r"\d+\s*(?:y|yrs?|years?)\.?\s*,?(?:\s*\d+\s*(?:m|mos?|mths?|months?)\.?)?|\d+;\d+",
    re.IGNORECASE,
)
_BAND = re.compile(r"\d+\s*(?:-|–|to)\s*\d+|\d+\s*\+|[<>]=?\s*\d+")


@dataclass(frozen=True)
class SuspiciousCode:  # numpydoc ignore=PR02
    """A value that is more likely a code for missing than a measurement.

    Parameters
    ----------
    value : float
    n_cells : int
        How often it stands in the column.
    low, high : float
        The range of the other values.
    """

    value: float
    n_cells: int
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"{self.value:g} stands {self.n_cells} times far outside the other values "
            f"({self.low:.4g} to {self.high:.4g})"
        )


def suspicious_codes(column: pd.Series) -> list[SuspiciousCode]:
    """Find repeated values that stand alone far outside the range of a column of numbers.

    A value of sevens, eights or nines (999, -9) is suspicious when its distance to all other values
    is larger than their range, or when it is the only negative one. Any other value must be ten
    times as far away.

    Parameters
    ----------
    column : Series

    Returns
    -------
    list of SuspiciousCode
        Empty for a column of words. Infinite values are missing, not codes.

    Examples
    --------
    >>> [str(code) for code in suspicious_codes(pd.Series([1, 2, 2, 1, 9, 9]))]
    ['9 stands 2 times far outside the other values (1 to 2)']
    >>> suspicious_codes(pd.Series([7, 8, 9, 9, 8, 7]))
    []
    """
    numbers = in_numbers(column.dropna()).dropna()
    numbers = numbers[np.isfinite(numbers)]
    counts = Counter(numbers.tolist())
    if not len(counts) >= 2 or pd.api.types.is_bool_dtype(column):
        return []
    usual = [
        value
        for value, n_cells in counts.items()
        if n_cells > 1 and value.is_integer() and _CODE.fullmatch(f"{int(value)}")
    ]
    others = numbers[~numbers.isin(_outer(usual, numbers))]
    extremes = {float(numbers.min()), float(numbers.max())}
    unusual = [value for value in extremes if counts[value] > 1 and value not in usual]
    codes = []
    for value in sorted({*usual, *unusual}):
        rest = others[others != value]
        if rest.empty:
            continue
        low = float(rest.min())
        high = float(rest.max())
        distance = max(value - high, low - value)
        factor = 1.0 if value in usual else _FAR
        is_far = distance > factor * (high - low) and distance >= _CLOSEST
        is_only_negative = value in usual and value < 0 <= low and len(rest) > 2
        if value in unusual and (value == 0 or rest.nunique() < 3):
            continue
        if is_far or is_only_negative:
            codes.append(SuspiciousCode(value, counts[value], low, high))
    return codes


def ages_in_words(column: pd.Series) -> str:
    """Say what a column of ages holds that are not numbers: `8y1m`, `26-30`.

    Parameters
    ----------
    column : Series

    Returns
    -------
    str
        Empty where most cells are numbers or other words.

    Examples
    --------
    >>> ages_in_words(pd.Series(["26-30", "31-35"]))
    "bands of years ('26-30', '31-35')"
    >>> ages_in_words(pd.Series(["8y1m", "9y"]))
    "years with months ('8y1m', '9y')"
    """
    if pd.api.types.is_numeric_dtype(column):
        return ""
    words = column.dropna().astype(str).str.strip()
    for pattern, content in ((_WITH_MONTHS, "years with months"), (_BAND, "bands of years")):
        is_such = words.str.fullmatch(pattern)
        if len(words) and is_such.mean() >= _MOSTLY:
            return f"{content} ({listed(map(repr, words[is_such].unique()), most=2)})"
    return ""


def refuse_doubtful_column(
    table: pd.DataFrame, name: str, where: object, confirmed: tuple[str, ...] = ()
) -> None:
    """Refuse a column with undeclared codes for missing values, or with ages in words.

    Parameters
    ----------
    table : DataFrame
    name : str
        A column that is predicted or adjusted for.
    where : object
        The table, as errors name it.
    confirmed : tuple of str
        Columns whose values are real, as the user says.
    """
    ages = ages_in_words(table[name]) if name.lower() == "age" else ""
    if ages:
        raise problem(
            where,
            f"column {name} holds {ages}",
            expected="years as numbers",
            remedy="Ingest again with a column of numbers (--columns age=THEIRS).",
        )
    codes = [] if name in confirmed else suspicious_codes(table[name])
    if codes:
        declared = ",".join(f"{name}={code.value:g}" for code in codes)
        raise NerveError(
            f"{where}: column {name}: {listed(codes)}, as codes for missing values do. Ingest "
            f"again with --na-values {declared}, or confirm that they are real: "
            f"--confirmed-values {name}."
        )


def _outer(usual: list[float], numbers: pd.Series) -> list[float]:
    """The possible codes that stand at the ends of a column, with nothing but codes beyond them."""
    ordered = sorted(numbers.unique())
    outer = []
    for values in (ordered, ordered[::-1]):
        for value in values:
            if value not in usual:
                break
            outer.append(value)
    # a column of sevens, eights and nines alone holds numbers, not codes
    return outer if len(set(outer)) < len(ordered) else []
