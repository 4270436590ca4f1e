"""Brain Network Transformer, trained inside each fold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from nerve.methods.predictor import Predictor
from nerve.methods.settings import Count, NotNegative, Positive, Share, Width
from nerve.models.brainnettf import BrainNetTFModel


@dataclass(kw_only=True, eq=False, repr=False)
class BrainNetTF(Predictor):
    """A transformer on the rows of the FC matrix, read out by soft clusters around orthogonal centres.

    The method's own: each region's FC profile is a token; two transformer layers (4 heads, 1,024
    hidden); OCRead, which pools the regions into 100 clusters with frozen orthogonal centres, of
    unit length but for the first, which keeps the length of its draw as in the release; linear
    layers 8, 256, 32; mixup of FC and target; Adam with a cosine from 1e-4 to 1e-5, batches of 16,
    200 epochs.

    Ours: one output for a continuous or two-valued target; any number of regions (the width is padded with zeros to a
    multiple of the heads, and there are at most R clusters); the weights of the best inner-validation epoch are kept.
    Its paper speaks of time series; its code reads the FC matrix only, and so do we, which is why it runs on cohorts
    where the NERVE paper prints "--".

    The NERVE paper does not say: how the classifier was made to regress, learning rate, epochs.

    Parameters
    ----------
    n_clusters, heads, feedforward, pooling_hidden, dropout, mixup
        Of the network; see `BrainNetTFModel`.
    epochs, batch_size, lr, min_lr, weight_decay
        Of Adam.
    validation_fraction : float
        Share of the training participants on whom the epoch is picked.
    seed : int
    device : str
    """

    model: ClassVar[Any] = BrainNetTFModel

    n_clusters: Width = 100
    heads: Width = 4
    feedforward: Width = 1024
    pooling_hidden: Width = 32
    dropout: Share = 0.1
    mixup: bool = True
    epochs: Count = 200
    batch_size: Count = 16
    lr: Positive = 1e-4
    min_lr: NotNegative = 1e-5
    weight_decay: NotNegative = 1e-4
    validation_fraction: Share = 0.1
