"""A table that prints whole: pandas leaves columns in the middle out of wide tables."""

from __future__ import annotations

import shutil
from typing import Any

import pandas as pd


class WholeTable(pd.DataFrame):
    """A DataFrame that shows every row and column, in a terminal and in a notebook.

    In a terminal, columns that do not fit beside the others follow below them. Numbers are shown
    with three digits after the point and are kept as they are.

    Examples
    --------
    >>> WholeTable({f"column {k}": [k / 7] for k in range(3)})
       column 0  column 1  column 2
    0     0.000     0.143     0.286
    """

    @property
    def _constructor(self) -> Any:
        # what is selected from such a table, or joined to it, prints whole too
        return WholeTable

    def __repr__(self) -> str:
        width = shutil.get_terminal_size().columns
        return self.to_string(line_width=width, float_format=_three_digits)

    def _repr_html_(self) -> str:
        return self.to_html(float_format=_three_digits, notebook=True)


def _three_digits(number: float) -> str:
    return f"{number:.3f}"
