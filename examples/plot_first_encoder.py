"""
Pretrain, embed, evaluate
=========================

For new users: all steps in Python. An encoder learns from a cohort without labels, gives features, and the features predict
targets in participants who were not used to fit the prediction.
"""

# %%
# A hundred simulated participants. `p_factor` follows FC with a true correlation of 0.6.
import matplotlib.pyplot as plt
import numpy as np

import nerve

cohort = nerve.simulate_cohort(100, "schaefer100-7", timepoints=150, seed=0, keep_timeseries=False)
print(cohort)

# %%
# The encoder is a scikit-learn transformer and uses no target. The preset `small` is a smaller form of the paper's model.
# The view is the matrix that is cut into patches: here FC itself, as in the paper.
encoder = nerve.NERVE.from_preset("small", view="fc", epochs=25, lr=1e-3, seed=0, device="cpu").fit(
    cohort
)
print(encoder.history_[["epoch", "training_loss", "validation_loss"]].iloc[[0, -1]])

# %%
# Hide a third of the patches of one participant, and let the model reconstruct them.
patching = encoder.patching_
hidden = np.random.default_rng(0).permutation(patching.n_patches)[: patching.n_patches // 3]
participant = cohort.subset([0])
rebuilt = encoder.reconstruct(participant, masked=hidden[None])[0]
covered = patching.pack(participant.connectivity[0])
covered[np.isin(patching.patch_of, hidden)] = np.nan
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4))
pictures = {
    "FC of one participant": participant.connectivity[0],
    "what the model sees": patching.unpack(covered),
    "what it reconstructs": rebuilt,
}
for axis, (title, fc) in zip(axes, pictures.items(), strict=True):
    axis.imshow(fc, cmap="RdBu_r", vmin=-0.6, vmax=0.6)
    axis.set(title=title, xticks=[], yticks=[])
figure.tight_layout()

# %%
# Features: one vector per participant, or one per participant and pair of networks.
Z = encoder.transform(cohort)
tokens = encoder.transform(cohort, pooling="tokens")
print(Z.shape, tokens.shape, patching.pair_names[:3])

# %%
# Out-of-fold predictions by kernel ridge regression, with age and sex removed, on the same folds for each feature set.
# Always add raw FC and, in simulations, a target that follows nothing.
features = {"NERVE": Z, "NERVE tokens": tokens.reshape(len(Z), -1), "raw FC": "raw"}
results = nerve.evaluate(
    features,
    cohort,
    ["p_factor", "null"],
    ["age", "sex"],
    n_folds=5,
    motion=None,
    pretrain_scope="all",
    n_bootstrap=200,
)
scores = results.scores
print(scores[["target", "row", "r", "r_low_cv", "r_high_cv", "r2"]].round(2))

# %%
# The same r with intervals. Look whether an interval includes zero. With so few participants and so short a training, NERVE
# is often not better than raw FC.
figure, axis = plt.subplots(figsize=(6, 3))
for place, row in enumerate(scores.itertuples()):
    axis.plot([row.r_low_cv, row.r_high_cv], [place, place], color="0.5")
    axis.plot(row.r, place, "o", color="crimson" if row.target == "p_factor" else "0.3")
axis.set(
    yticks=range(len(scores)),
    yticklabels=[f"{row.target}: {row.row}" for row in scores.itertuples()],
)
axis.axvline(0, color="0.8", zorder=0)
axis.set_xlabel("r, observed against predicted (95 % interval)")
figure.tight_layout()
plt.show()
