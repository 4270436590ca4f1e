"""
A tokenizer of your own, in 20 lines
====================================

For developers of methods. This tokenizer uses only the mean of a patch. It is trained and compared with two tokenizers of the
paper. The training is far too short for conclusions; the example shows how to make such a comparison.
"""

# %%
# A tokenizer defines two matrices per patch: from the patch to the token (`embed`) and back (`reconstruct`). Here both are one
# row per patch, repeated for all its entries. The token is therefore a multiple of the mean of the patch, and the
# reconstruction is the same for all entries.
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
# The loss during training; 1 is the error of the group mean. Look whether the two tokenizers that see all entries of a
# patch get lower than the one that sees only the mean.
import matplotlib.pyplot as plt

figure, axis = plt.subplots(figsize=(6, 3.5))
for name, encoder in encoders.items():
    axis.plot(encoder.history_["epoch"], encoder.history_["validation_loss"], label=name)
axis.set(xlabel="Epoch", ylabel="Held-out loss of masked patches")
axis.legend()
figure.tight_layout()

# %%
# What the features predict, on the same folds, compared with raw FC. The target `null` follows nothing, so its r should be
# near zero.

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
