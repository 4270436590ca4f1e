"""
Which network pairs carry a prediction?
=======================================

For users who want to interpret a linear prediction. The weights of a linear model do not show importance, because they also
cancel noise. Haufe's pattern, the covariance of each feature with the prediction, does. In a simulated cohort we know the
network pairs on which a target acts, so we can test it.
"""

# %%
# A cohort, and the network pairs on which its target acts.
import matplotlib.pyplot as plt
import numpy as np

import nerve
from nerve.data.simulate import patch_means

cohort = nerve.simulate_cohort(200, "schaefer100-7", timepoints=200, seed=0, keep_timeseries=False)
truth = cohort.notes["truth"]["targets"]["p_factor"]
planted = {"–".join(pair) for pair in truth["pairs"]}
print("planted:", sorted(planted))

# %%
# Predict it out of fold from raw FC.
results = nerve.evaluate("raw", cohort, "p_factor", ["age", "sex"], n_folds=5, motion="none")
predicted = (
    results.predictions.set_index("participant")["predicted"]
    .loc[cohort.participants["participant_id"]]
    .to_numpy()
)
print("r", round(np.corrcoef(predicted, cohort.participants["p_factor"])[0, 1], 2))

# %%
# Correlate the mean FC of each pair of networks with the prediction. The planted pairs should have the largest values. Pairs that
# share a network with them also have large values, because their FC correlates.
patching = nerve.Patching.from_parcellation(cohort.parcellation)
means = patch_means(cohort.connectivity, patching)  # (participants, network pairs)
pattern = np.array([np.corrcoef(column, predicted)[0, 1] for column in means.T])
order = np.argsort(-np.abs(pattern))[:12]
names = np.array(patching.pair_names)

figure, axis = plt.subplots(figsize=(6, 4))
colours = ["crimson" if names[i] in planted else "0.7" for i in order]
axis.barh(range(len(order)), pattern[order], color=colours)
axis.set(
    yticks=range(len(order)), yticklabels=names[order], xlabel="Correlation with the prediction"
)
axis.invert_yaxis()
axis.set_title("Planted pairs in red")
figure.tight_layout()
print("planted among the first three:", len(planted & set(names[order[:3]])), "of", len(planted))
plt.show()
