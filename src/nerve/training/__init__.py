"""The one training loop of the package: `train(module, source, settings, run_dir=...)`.

It knows one verb of a module, ``training_loss(batch, draws) -> scalar tensor`` (the mean over the batch's samples), and
two of a source, ``len(source)`` and ``source.batch(rows)``. Everything random is derived from (seed, step), so that a
run can be stopped anywhere and continued bit for bit, and several processes draw what one would have drawn.
"""

from nerve.training.draws import Draws
from nerve.training.loop import train
from nerve.training.settings import TrainingSettings
from nerve.training.sources import ArraySource, CohortSource, PairedSource, Source

__all__ = ["ArraySource", "CohortSource", "Draws", "PairedSource", "Source", "TrainingSettings", "train"]
