"""What stands above the columns and before the rows of a text that holds nothing but numbers.

A first line of numbers may be a header (codes of an atlas, 1 2 3 …) or the first row of the data.
What the numbers prove is taken: below a header lies a symmetric matrix, or the codes are those of
the atlas. Where both readings fit, `find_frame` refuses and names the option that chooses.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from nerve._utils.errors import listed, problem

_TOLERANCE = 1e-3  # of symmetry, relative to the largest value
_FEWEST_TIMES = 10  # volumes from which on equal steps are times


@dataclass(frozen=True)
class Frame:  # numpydoc ignore=PR02
    """Whether a header and an index surround the numbers.

    Parameters
    ----------
    header, index : bool
    is_time : bool
        The index holds times, not names of rows.
    words : str
        What was decided and what shows it, for the plan.
    """

    header: bool = False
    index: bool = False
    is_time: bool = False
    words: str = "none"


def find_frame(
    values: np.ndarray,
    where: object,
    header: str = "auto",
    index: str = "auto",
    codes: Collection[str] = (),
) -> Frame:
    """Find out whether the first line and the first column of a table of numbers name the others.

    Parameters
    ----------
    values : (rows, columns) array
        All numbers of the file.
    where : object
        The file, as errors name it.
    header, index : {"auto", "yes", "no"}
        What the user says.
    codes : collection of str
        Numbers by which the parcellation lists its regions.

    Returns
    -------
    Frame

    Examples
    --------
    >>> fc = np.array([[1, 0.5, 0.2], [0.5, 1, 0.3], [0.2, 0.3, 1]])
    >>> find_frame(fc, "example").words
    'none'
    >>> find_frame(np.vstack([[2001, 2002, 2101], fc]), "example").header
    True
    """
    if header != "auto" and index != "auto":
        decision = f"as the user says (--header {header}, --index {index})"
        return Frame(header == "yes", index == "yes", words=decision)
    may_have_header = header != "no"
    may_have_index = index != "no"
    must_have_header = header == "yes"
    must_have_index = index == "yes"

    # header and index are the same codes, around an empty corner
    if may_have_header and may_have_index and _is_framed(values):
        return Frame(True, True, words="numbers above the columns and the same before the rows")
    if _is_matrix(values) and not must_have_header and not must_have_index:
        return Frame()
    inner = values[1:] if must_have_header else values
    inner = inner[:, 1:] if must_have_index else inner
    if must_have_header and may_have_index and _is_matrix(inner[:, 1:]):
        return Frame(True, True, words="--header yes; the rows are named by numbers")
    if must_have_index and may_have_header and _is_matrix(inner[1:]):
        return Frame(True, True, words="--index yes; the columns are named by numbers")
    if may_have_header and not must_have_header and _is_matrix(inner[1:]):
        return Frame(
            True,
            must_have_index,
            words=f"a header of numbers ({_start_of(inner[0])}): below it lies a symmetric matrix",
        )
    if may_have_index and not must_have_index and _is_matrix(inner[:, 1:]):
        return Frame(
            must_have_header,
            True,
            words="a column of numbers before the rows: beside it lies a symmetric matrix",
        )

    # no matrix: time series, or vectors
    has_header = must_have_header
    words: list[str] = []
    if must_have_header:
        words.append("a header (--header yes)")
    elif may_have_header:
        has_header = _has_code_header(inner, where, codes)
        if has_header:
            words.append(f"a header of numbers ({_start_of(inner[0])})")
    has_index = must_have_index
    is_time = False
    if must_have_index:
        words.append("a column of names (--index yes)")
    elif may_have_index and values.shape[1] > 1:
        column = values[1:, 0] if has_header else values[:, 0]
        if _counts_up(column):
            has_index = True
            words.append("a column that counts the rows")
        elif len(column) >= _FEWEST_TIMES and _has_equal_steps(column):
            has_index = True
            is_time = True
            words.append("a first column of times, which is left out")
    return Frame(has_header, has_index, is_time, " and ".join(words) or "none")


def are_codes(numbers: np.ndarray) -> bool:
    """Whether numbers are different whole ones from 0 on.

    Parameters
    ----------
    numbers : (n,) array

    Returns
    -------
    bool
    """
    are_counts = bool(np.all(np.isfinite(numbers) & (numbers >= 0) & (numbers % 1 == 0)))
    return are_counts and len(numbers) > 2 and len(np.unique(numbers)) == len(numbers)


def _has_code_header(values: np.ndarray, where: object, codes: Collection[str]) -> bool:
    """Whether the first line of a table that is no matrix is a header; refuses where it may be."""
    first = values[0]
    rest = values[1:]
    if len(rest) == 0:
        return False
    corner_is_empty = bool(np.isnan(first[0])) and _counts_up(rest[:, 0])
    if corner_is_empty and len(first) == 2:  # a vector with its index, as pandas writes it
        return True
    names = first[1:] if corner_is_empty else first
    if not are_codes(names):
        return False
    if _counts_up(names):  # the 0, 1, 2 … that pandas writes unless it is told not to
        return True
    words = {f"{number:.0f}" for number in names}
    if words <= set(codes):
        return True
    below = rest[:, -len(names) :]
    has_fractions = bool((np.nan_to_num(below) % 1 != 0).any())
    is_ascending = len(names) >= 5 and bool(np.all(np.diff(names) > 0))
    if not (has_fractions or is_ascending):
        return False
    n_rows = len(rest)
    raise problem(
        where,
        f"its first line ({_start_of(names)}) can be a header of numbers above {n_rows} rows, or "
        f"the first of {n_rows + 1} rows",
        expected="a file that can be read in one way",
        remedy="Say which: --header yes, or --header no.",
    )


def _is_framed(values: np.ndarray) -> bool:
    """Whether the first line and the first column are the same codes around a matrix."""
    if values.shape[0] != values.shape[1] or len(values) < 4:
        return False
    codes = values[0, 1:]
    is_same = np.array_equal(codes, values[1:, 0])
    if not is_same or not are_codes(codes):
        return False
    inner = values[1:, 1:]
    corner_is_empty = bool(np.isnan(values[0, 0])) and not bool(np.isnan(inner.diagonal()).all())
    has_fractions = bool((np.nan_to_num(inner) % 1 != 0).any())
    is_ascending = bool(np.all(np.diff(codes) > 0))
    return _is_matrix(inner) and (corner_is_empty or (has_fractions and is_ascending))


def _is_matrix(values: np.ndarray) -> bool:
    """Whether values are a symmetric matrix, or one of which a triangle is empty."""
    if values.ndim != 2 or values.shape[0] != values.shape[1] or len(values) < 3:
        return False
    known = np.nan_to_num(values, posinf=0.0, neginf=0.0)
    upper = np.triu(known, 1)
    lower = np.tril(known, -1).T
    if not upper.any() or not lower.any():
        return bool(upper.any() or lower.any())
    scale = max(float(np.abs(known - np.diag(known.diagonal())).max()), 1.0)
    return bool(np.abs(upper - lower).max() <= _TOLERANCE * scale)


def _counts_up(numbers: np.ndarray) -> bool:
    """Whether they are 0, 1, 2 … or 1, 2, 3 …"""
    if len(numbers) < 3 or numbers[0] not in (0, 1):
        return False
    return bool(np.array_equal(numbers, np.arange(len(numbers)) + numbers[0]))


def _has_equal_steps(numbers: np.ndarray) -> bool:
    """Whether numbers rise by the same step, except for rounding."""
    steps = np.diff(numbers)
    if not np.all(np.isfinite(steps)) or steps.min() <= 0:
        return False
    return bool(np.ptp(steps) <= 2e-2 * steps.mean())


def _start_of(numbers: np.ndarray) -> str:
    return listed([f"{number:g}" for number in numbers], most=3)
