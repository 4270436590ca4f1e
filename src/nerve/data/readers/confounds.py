"""Nuisance regressors from a confounds table, and cleaned region series.

Strategies are named as in XCP-D. The columns are fMRIPrep's; where a table has only the base
columns (DeepPrep), the derivatives and squares are computed here:

    derivative1[t] = x[t] - x[t - 1],     power2 = x²

The first volume has no derivative: as in nilearn, it takes the value of the second.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, listed, one_of, problem
from nerve.data.connectivity import MIN_VOLUMES
from nerve.data.readers.opening import require_file
from nerve.data.readers.text import column_of_numbers, read_table

MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")
_TISSUE = ("csf", "white_matter")
_ALL_TERMS = ("", "_derivative1", "_power2", "_derivative1_power2")
_N_COMPCOR = 5

# name -> (base columns, terms made of each)
STRATEGIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "none": ((), ()),
    "6p": (MOTION, ("",)),
    "8p": (MOTION + _TISSUE, ("",)),
    "24p": (MOTION, _ALL_TERMS),
    "32p": (MOTION + _TISSUE, _ALL_TERMS),
    "36p": ((*MOTION, *_TISSUE, "global_signal"), _ALL_TERMS),
    "acompcor": (MOTION, ("", "_derivative1")),
}


@dataclass(frozen=True)
class Denoising:  # numpydoc ignore=PR02
    """What is removed from region series.

    Parameters
    ----------
    strategy : str
        One of `STRATEGIES`; ``acompcor`` adds the first 5 anatomical components of white matter and
        CSF.
    high_pass, low_pass : float or None
        Band that is kept, in Hz.
    """

    strategy: str = "36p"
    high_pass: float | None = 0.01
    low_pass: float | None = 0.08

    @classmethod
    def parse(cls, text: str | None) -> Denoising:
        """From what the user types: ``36p``, ``24p:0.01-0.1``, ``6p:0.008-`` or ``none``.

        Parameters
        ----------
        text : str, optional

        Returns
        -------
        Denoising

        Examples
        --------
        >>> Denoising.parse("24p:0.01-0.1")
        Denoising(strategy='24p', high_pass=0.01, low_pass=0.1)
        >>> Denoising.parse("none")
        Denoising(strategy='none', high_pass=None, low_pass=None)
        """
        name, colon, band = (text or cls.strategy).lower().partition(":")
        one_of("--denoise", name, list(STRATEGIES))
        if not colon:
            return cls(name, None, None) if name == "none" else cls(name)
        edges = re.fullmatch(r"(\d*\.?\d+)?-(\d*\.?\d+)?", band)
        is_band = edges is not None
        low: float | None = None
        high: float | None = None
        if edges is not None:
            low = float(edges[1]) if edges[1] else None
            high = float(edges[2]) if edges[2] else None
            if low is not None and high is not None:
                is_band = low < high
        if not is_band:
            raise NerveError(
                f"--denoise is {text!r}, expected a strategy and a band in Hz such as "
                "'36p:0.01-0.08'."
            )
        return cls(name, low, high)

    @property
    def is_nothing(self) -> bool:
        """Whether series are left as they are."""
        return self.strategy == "none" and self.high_pass is None and self.low_pass is None

    def describe(self) -> str:
        """One phrase for the log."""
        if self.is_nothing:
            return "as preprocessed: nothing regressed out, no band-pass"
        high = "∞" if self.low_pass is None else f"{self.low_pass:g}"
        no_band = self.high_pass is None and self.low_pass is None
        band = "no band-pass" if no_band else f"band {self.high_pass or 0:g}–{high} Hz"
        return f"detrended, cleaned of {self.strategy} confounds, {band}"


def read_confounds(path: Path) -> pd.DataFrame:
    """The table of confounds of one scan."""
    table = read_table(require_file(path))
    if table.empty or not isinstance(table.index, pd.RangeIndex):
        raise problem(
            path, "the confounds table has no rows or no proper header", remedy="Make it again."
        )
    return table


def regressors(table: pd.DataFrame, strategy: str, where: object) -> np.ndarray | None:
    """The (volumes, regressors) matrix of a strategy, None for `none`."""
    bases, terms = STRATEGIES[strategy]
    if not bases:
        return None
    components = _compcor(table) if strategy == "acompcor" else []
    missing = [name for name in (*bases, *components) if name not in table.columns]
    if missing:
        raise problem(
            where,
            f"the confounds table lacks {listed(missing)}",
            expected=f"the columns of the strategy {strategy}",
            remedy="Choose another with --denoise (none, 6p, 8p, 24p, 32p, 36p, acompcor).",
        )
    columns = [_term(table, base, term, where) for term, base in itertools.product(terms, bases)]
    columns += [column_of_numbers(table, name, where) for name in components]
    # (volumes, regressors); the first volume has no derivative and takes that of the second
    matrix = pd.DataFrame(np.column_stack(columns)).bfill().fillna(0.0).to_numpy()
    return matrix[:, matrix.std(axis=0) > 0]


def clean_series(
    series: np.ndarray,
    confounds: np.ndarray | None,
    denoising: Denoising,
    repetition_time: float,
    where: object,
) -> np.ndarray:
    """Region series without trend, confounds and frequencies outside the band; (volumes, regions).

    Cleaning is linear, so cleaning the mean of a region equals the mean of cleaned voxels.

    Parameters
    ----------
    series : (volumes, regions)
    confounds : (volumes, regressors), optional
    denoising : Denoising
    repetition_time : float
        In seconds.
    where : object
        The file, for errors.

    Returns
    -------
    (volumes, regions)
    """
    from nilearn.signal import clean

    if confounds is not None and len(confounds) != len(series):
        raise problem(
            where,
            f"{len(confounds)} rows of confounds for {len(series)} volumes",
            expected="one per volume",
        )
    if denoising.is_nothing:
        return series
    n_regressors = 0 if confounds is None else confounds.shape[1]
    nyquist = 0.5 / repetition_time
    top = nyquist if denoising.low_pass is None else min(denoising.low_pass, nyquist)
    share = max(0.0, top - (denoising.high_pass or 0.0)) / nyquist
    # those of the band, minus a trend and one per regressor
    n_degrees = int(share * len(series)) - n_regressors - 1
    if n_degrees < MIN_VOLUMES:
        raise problem(
            where,
            f"{n_regressors} confounds and the band-pass leave {max(n_degrees, 0)} of "
            f"{len(series)} degrees of freedom",
            expected=f"at least {MIN_VOLUMES}",
            remedy="The scan is too short for this: choose a lighter --denoise, such as 6p or "
            "24p:0.01-.",
        )
    usable = np.isfinite(series).all(axis=0)
    cleaned = np.full(series.shape, np.nan)
    band = {
        "high_pass": denoising.high_pass,
        "low_pass": denoising.low_pass,
        "t_r": repetition_time,
    }
    try:
        cleaned[:, usable] = clean(
            series[:, usable], confounds=confounds, detrend=True, standardize=None, **band
        )
    except ValueError as error:
        cause = " ".join(str(error).split()).rstrip(".")
        raise problem(
            where, f"the series could not be cleaned ({cause})", remedy="Change --denoise."
        ) from error
    return cleaned


def _term(table: pd.DataFrame, base: str, term: str, where: object) -> np.ndarray:
    """A column with its term (`_derivative1` …), computed where the table lacks it."""
    if base + term in table.columns:
        return column_of_numbers(table, base + term, where)
    value = column_of_numbers(table, base, where)
    if "derivative1" in term:
        value = np.diff(value, prepend=np.nan)
    return value**2 if "power2" in term else value


def _compcor(table: pd.DataFrame) -> list[str]:
    """The columns of cosines and of anatomical components (of CSF and white matter, or of both)."""
    names = [str(name) for name in table.columns]
    separate = [f"c_comp_cor_{i:02d}" for i in range(_N_COMPCOR)]
    separate += [f"w_comp_cor_{i:02d}" for i in range(_N_COMPCOR)]
    components = [name for name in separate if name in names]
    if not components:
        combined = sorted(name for name in names if name.startswith("a_comp_cor_"))
        components = combined[: 2 * _N_COMPCOR]
    if not components:
        components = ["a_comp_cor_00"]  # reported as missing
    return components + [name for name in names if name.startswith("cosine")]
