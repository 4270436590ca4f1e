"""
A simulated cohort, and finding what was planted in it
======================================================

Simulated participants differ on a few factors, each of which changes FC on stated network pairs. Targets such as
`p_factor` follow these factors with a known correlation, so we can ask whether an analysis finds the truth.
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
# The average matrix has the networks of real FC: within them about 0.3, between them about 0.
figure, axis = plt.subplots(figsize=(5, 4))
image = axis.imshow(cohort.connectivity.mean(axis=0), cmap="RdBu_r", vmin=-0.6, vmax=0.6)
axis.set(title="Mean FC", xlabel="Region", ylabel="Region")
figure.colorbar(image, label="Pearson r")

# %%
# The notes say what was planted: here, where `p_factor` acts, and the best correlation that any model can reach.
truth = cohort.notes["truth"]["targets"]["p_factor"]
print("true r", truth["true_r"], "on", truth["pairs"])

# %%
# The simplest analysis correlates the mean FC of every network pair with the target. The planted pairs stand out; for
# the null target nothing does.
patching = nerve.Patching.from_parcellation(cohort.parcellation)
means = patch_means(cohort.connectivity, patching)  # (participants, network pairs)
planted = ["–".join(pair) for pair in truth["pairs"]]
figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True)
for axis, target in zip(axes, ["p_factor", "null"], strict=True):
    found = np.array([np.corrcoef(column, cohort.participants[target])[0, 1] for column in means.T])
    is_planted = np.isin(patching.pair_names, planted)
    axis.scatter(
        np.flatnonzero(~is_planted), found[~is_planted], s=8, color="0.6", label="other pairs"
    )
    axis.scatter(
        np.flatnonzero(is_planted),
        found[is_planted],
        s=30,
        color="crimson",
        label="planted for p_factor",
    )
    axis.set(title=target, xlabel="Network pair")
axes[0].set_ylabel("Correlation with mean FC")
axes[0].legend()
figure.tight_layout()

# %%
# The factor scores themselves are known too: the correlation of the target with its factor is the stated one, within
# the error of 300 participants.
general = factor_scores(cohort)["general"]
print(round(np.corrcoef(general, cohort.participants["p_factor"])[0, 1], 2))

# %%
# The same participants on another day: individuals resemble themselves more than each other.
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
