"""Whether pretraining has learned anything: its error of masked patches beside the group mean's."""

from __future__ import annotations

_LITTLE = 0.98  # of the group mean's error, or more: next to nothing was learned


def learned_little(error_ratio: float, epochs: int) -> str:
    """A sentence for a training that has learned next to nothing, empty otherwise.

    Parameters
    ----------
    error_ratio : float
        Error of masked patches of held-out participants, as a share of the group mean's; NaN where
        it is not known.
    epochs : int
        Epochs of the training; an untrained control (0) has learned nothing, as it should.

    Returns
    -------
    str

    Examples
    --------
    >>> learned_little(0.7, 10), learned_little(1.0, 0), learned_little(float("nan"), 10)
    ('', '', '')
    >>> learned_little(0.98, 10)[:62]
    'Training has learned next to nothing beyond its input (error o'
    """
    if epochs == 0 or not error_ratio >= _LITTLE:
        return ""
    return (
        "Training has learned next to nothing beyond its input (error of masked patches: "
        f"{error_ratio:.3f} times the "
        "group mean's): compare what it predicts with the untrained control, `nerve pretrain … "
        "--set epochs=0`, or "
        "`settings: {epochs: 0}` in an experiment file."
    )
