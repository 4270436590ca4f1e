"""BrainNetCNN, trained inside each fold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from nerve.methods.predictor import Predictor
from nerve.methods.settings import Count, NotNegative, Positive, Share, Width, Widths
from nerve.models.brainnetcnn import BrainNetCNNModel


@dataclass(kw_only=True, eq=False, repr=False)
class BrainNetCNN(Predictor):
    """A convolutional network whose filters are crosses: one row and one column of the FC matrix.

    The method's own: the edge-to-edge, edge-to-node and node-to-graph layers, leaky ReLU, dropout. Widths and schedule
    are those of He et al. (2020), who tuned the network for behaviour in 419 regions: one edge-to-edge layer of 16
    filters, 128 node filters, 26 graph filters, SGD with momentum, 150 epochs.

    Ours: the cross is a broadcast sum of two matrix products (same result, no tiled copies); any
    number of regions; dropout is off in `predict`; a two-valued target is learned by cross-entropy;
    the gradient's norm is clipped at 1. A tenth of the training participants is held out, and the
    weights of least error on them are kept; He et al. choose the epoch in inner folds and train
    again on all training participants. The matrix enters as it is, with its unit diagonal.

    The NERVE paper does not say: widths, learning rate, epochs, how the epoch was picked.

    Parameters
    ----------
    edge_filters, node_filters, graph_filters : int
        Channels after the three layers.
    hidden : tuple of int
        Widths of further linear layers before the output; Kawahara et al. used (128, 30), He et al. none.
    slope : float
        Of the leaky ReLU.
    dropout : float
    epochs, batch_size, lr, momentum, weight_decay
        Of SGD, at a constant learning rate.
    validation_fraction : float
        Share of the training participants on whom the epoch is picked.
    seed : int
    device : str

    Examples
    --------
    >>> import numpy as np
    >>> fc = np.random.default_rng(0).uniform(-1, 1, (12, 8, 8))
    >>> BrainNetCNN(epochs=1, edge_filters=2, node_filters=3).fit(fc, np.arange(12.0)).predict(fc).shape
    (12,)
    """

    model: ClassVar[Any] = BrainNetCNNModel

    edge_filters: Width = 16
    node_filters: Width = 128
    graph_filters: Width = 26
    hidden: Widths = ()
    slope: NotNegative = 0.1
    dropout: Share = 0.5
    epochs: Count = 150
    batch_size: Count = 128
    lr: Positive = 0.01
    momentum: Share = 0.9
    weight_decay: NotNegative = 0.0
    validation_fraction: Share = 0.1
