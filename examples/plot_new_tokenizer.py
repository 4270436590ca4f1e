"""
A tokenizer of your own, in 20 lines
====================================

How much of FC does a tokenizer need to see? Here is one that sees only the mean of a patch, trained beside the
paper's. The training is far too short for conclusions: it shows how the comparison is made.
"""

# %%
# A tokenizer says where the matrix of each patch comes from, there (`embed`) and back (`reconstruct`). Here both are
# one row per patch, repeated for all its entries: the token is a multiple of the patch's mean, and what comes back is
# the same for all its entries.
import torch
from torch import nn

from nerve.core import Tokenizer


class MeanTokenizer(Tokenizer):
    def __init__(self, patching, dim, decoder_dim, bias=False):
        super().__init__(patching, dim, decoder_dim)
        self.embed_rows = nn.Parameter(torch.empty(self.n_patches, dim))
        self.reconstruct_rows = nn.Parameter(torch.empty(self.n_patches, decoder_dim))

    def embed_weights(self):  # (size, dim) of each patch
        return (
            row.expand(size, -1) / size
            for row, size in zip(self.embed_rows, self.sizes, strict=True)
        )

    def reconstruct_weights(self):  # (size, decoder_dim) of each patch
        return (
            row.expand(size, -1)
            for row, size in zip(self.reconstruct_rows, self.sizes, strict=True)
        )

    def initialise(self, how, size):  # `size`: the root mean square of the entries
        nn.init.normal_(self.embed_rows)
        nn.init.normal_(self.reconstruct_rows, std=0.02)


# %%
# A class is accepted wherever the name of a tokenizer is. Everything else is the same: participants, view, width,
# epochs, seed. Here the view is FC itself, as in the paper.
import nerve

cohort = nerve.simulate_cohort(100, "schaefer100-7", timepoints=150, seed=0, keep_timeseries=False)
same = {
    "view": "fc",
    "dim": 32,
    "epochs": 15,
    "lr": 1e-3,
    "seed": 0,
    "device": "cpu",
}
encoders = {
    name: nerve.NERVE(tokenizer=tokenizer, **same)
    for name, tokenizer in {
        "bilinear": "bilinear",
        "shared": "shared",
        "mean": MeanTokenizer,
    }.items()
}
features = {name: encoder.fit(cohort).transform(cohort) for name, encoder in encoders.items()}
for name, encoder in encoders.items():
    size = sum(parameter.numel() for parameter in encoder.module_.tokenizer.parameters())
    print(
        f"{name:9} {size:6} parameters, held-out loss {encoder.history_['validation_loss'].min():.4f}"
    )

# %%
# The losses over training, 1 being the error of the group mean. All three see the mean of a patch; only two can
# see more.
import matplotlib.pyplot as plt

figure, axis = plt.subplots(figsize=(6, 3.5))
for name, encoder in encoders.items():
    axis.plot(encoder.history_["epoch"], encoder.history_["validation_loss"], label=name)
axis.set(xlabel="Epoch", ylabel="Held-out loss of masked patches")
axis.legend()
figure.tight_layout()

# %%
# What the features predict, on the same folds, beside raw FC and for a target that follows nothing.

results = nerve.evaluate(
    features | {"raw": "raw"},
    cohort,
    ["p_factor", "null"],
    ["age", "sex"],
    n_folds=5,
    motion=None,
    pretrain_scope="all",
    n_bootstrap=200,
)
print(results.scores[["target", "row", "r", "r_low_cv", "r_high_cv", "r2"]].round(2))
paired = results.compare("mean", "bilinear")
print(paired[["target", "difference", "difference_low", "difference_high", "p"]].round(2))
plt.show()
