"""
A simulated cohort, and finding what was planted in it
======================================================

For users who want to test an analysis. Simulated participants differ in a few factors, and each factor changes FC in known
network pairs. Targets such as `p_factor` follow these factors with a known correlation. So we can test whether an
analysis finds them.
"""

# %%
# Three hundred participants, scanned for 200 volumes on three scanners.
import matplotlib.pyplot as plt
import numpy as np

import nerve
from nerve.data.simulate import factor_scores, patch_means, simulate_cohort

cohort = simulate_cohort(300, "schaefer100-17", timepoints=200, seed=0)
print(cohort)
print(cohort.participants.head())

# %%
# The average matrix has networks like real FC. Look for blocks along the diagonal: FC is about 0.3 within networks and about 0
# between them.
figure, axis = plt.subplots(figsize=(5, 4))
image = axis.imshow(cohort.connectivity.mean(axis=0), cmap="RdBu_r", vmin=-0.6, vmax=0.6)
axis.set(title="Mean FC", xlabel="Region", ylabel="Region")
figure.colorbar(image, label="Pearson r")

# %%
# The notes of the cohort list the planted effects: here the network pairs of `p_factor`, and its correlation with its factors,
# which no model can exceed.
truth = cohort.notes["truth"]["targets"]["p_factor"]
print("true r", truth["true_r"], "on", truth["pairs"])

# %%
# The simplest analysis correlates the mean FC of every network pair with the target. Look for the planted pairs: they have large
# values for `p_factor`, and no pair has a large value for `null`.
patching = nerve.Patching.from_parcellation(cohort.parcellation)
means = patch_means(cohort.connectivity, patching)  # (participants, network pairs)
planted = ["–".join(pair) for pair in truth["pairs"]]
figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True)
for axis, target in zip(axes, ["p_factor", "null"], strict=True):
    values = cohort.participants[target]
    correlations = np.array([np.corrcoef(column, values)[0, 1] for column in means.T])
    is_planted = np.isin(patching.pair_names, planted)
    axis.scatter(
        np.flatnonzero(~is_planted),
        correlations[~is_planted],
        s=8,
        color="0.6",
        label="other pairs",
    )
    axis.scatter(
        np.flatnonzero(is_planted),
        correlations[is_planted],
        s=30,
        color="crimson",
        label="planted for p_factor",
    )
    axis.set(title=target, xlabel="Network pair")
axes[0].set_ylabel("Correlation with mean FC")
axes[0].legend()
figure.tight_layout()

# %%
# The factor scores are known too. The correlation of the target with its factor is the stated one, except for the sampling
# error of 300 participants.
general = factor_scores(cohort)["general"]
print(round(np.corrcoef(general, cohort.participants["p_factor"])[0, 1], 2))

# %%
# The same participants on another day. Look for a bright diagonal: two sessions of one participant are more similar than two
# participants.
again = simulate_cohort(300, "schaefer100-17", timepoints=200, seed=0, session=2)
few = np.arange(30)
similarity = np.corrcoef(cohort.inputs("upper", few), again.inputs("upper", few))[:30, 30:]
figure, axis = plt.subplots(figsize=(4.5, 4))
image = axis.imshow(similarity, cmap="viridis")
axis.set(
    title="Similarity of two sessions",
    xlabel="Participant, session 2",
    ylabel="Participant, session 1",
)
figure.colorbar(image, label="Correlation of FC")
print("recognised:", np.mean(similarity.argmax(axis=1) == few))
plt.show()
