"""Training curves for other programs: callbacks of `fit` that write one row per epoch.

A callback is any function of one dict, the row of the history at the end of an epoch
(`nerve.core.training.train`); W&B's ``wandb.log`` is one as it is. Nothing here uses a network.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nerve._utils.errors import NerveError, one_of

FOLDER = "tensorboard"
_NOT_DRAWN = ("epoch", "step")  # these say where the other numbers of a row are drawn


class TensorBoardCurves:
    """Write each number of an epoch as a curve for TensorBoard (extra ``tensorboard``).

    Parameters
    ----------
    folder : path
        Where its event files go. A resumed run goes on with the same curves.

    Examples
    --------
    >>> curves = TensorBoardCurves("runs/first/tensorboard")
    >>> # encoder.fit(cohort, callbacks=[curves])
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if find_spec("tensorboard") is None:
            raise NerveError(
                "TensorBoard is not installed: pip install 'nerve-fc[tensorboard]' adds it."
            )
        self.folder = Path(folder)
        self._writer: Any = None

    def __call__(self, record: dict[str, Any]) -> None:
        """Write the row of an epoch."""
        from torch.utils.tensorboard import SummaryWriter

        step = record["step"]
        if self._writer is None:
            # epochs that a killed run had written, and that are trained again, are hidden
            self._writer = SummaryWriter(str(self.folder), purge_step=step)
        for name, value in record.items():
            if name not in _NOT_DRAWN and value is not None:
                self._writer.add_scalar(name, value, step)
        self._writer.flush()


def curve_writer(name: str, run_folder: Path) -> TensorBoardCurves:
    """Make the callback that `nerve pretrain --log` names.

    Parameters
    ----------
    name : str
        ``tensorboard``.
    run_folder : path
        The folder of the run; the curves get a folder of their own in it.

    Returns
    -------
    TensorBoardCurves
        A callback of `fit`.
    """
    one_of("--log", name, ["tensorboard"])
    return TensorBoardCurves(run_folder / FOLDER)
