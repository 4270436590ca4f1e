"""The most common file, an FC matrix with its labels in the first row and column, read by the shortest way.

pandas spends a fifth of its time on making 400 columns. Here the parser sees the whole matrix as one column of numbers.
"""

from __future__ import annotations

import io

import numpy as np
import pandas as pd

_CORNER = b"node"


def read_square(content: bytes) -> tuple[np.ndarray, tuple[str, ...]] | None:
    """The (R, R) matrix and its labels; None for any content that departs from the layout, to be read the long way.

    The layout: tabs, `Node` in the corner, the same labels in the same order above the columns and before the rows, and
    a number (or nothing, or ``n/a``) in every cell.
    """
    head, _, body = content.partition(b"\n")
    corner, *labels = head.rstrip(b"\r").split(b"\t")
    if corner.lower() != _CORNER:
        return None
    rows = [row.partition(b"\t") for row in body.splitlines()]
    same_labels = [name for name, _, _ in rows] == labels
    if not same_labels or any(cells.count(b"\t") != len(labels) - 1 for _, _, cells in rows):
        return None
    column = b"\n".join([cells for _, _, cells in rows]).replace(b"\t", b"\n")
    try:
        table = pd.read_csv(
            io.BytesIO(column),
            sep="\t",
            header=None,
            dtype=np.float64,
            na_values=["n/a"],
            skip_blank_lines=False,
            low_memory=False,
        )
        names = tuple(label.decode().strip() for label in labels)
    except ValueError:  # text in a cell or an unknown encoding
        return None
    if table.shape != (len(labels) ** 2, 1):
        return None
    return table.to_numpy().reshape(len(labels), len(labels)), names
