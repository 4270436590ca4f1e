"""
What does a model rely on?
==========================

For users who want to know which networks lie behind a prediction. On a simulated cohort the answer is known: the target
follows a factor that acts on three pairs of networks. Do occlusion and Haufe's patterns find these pairs?
"""

# %%
# The score of the participants correlates 0.8 with one factor. Seven other factors, age, sex, motion and scanners also
# change FC.
import matplotlib.pyplot as plt

import nerve
from nerve.data.simulate import Target, simulate_cohort
from nerve.interpret import (
    attention_summary,
    network_weights,
    patch_importance,
    region_occlusion,
)
from nerve.report.report_data import ReportData

target = Target("score", true_r=0.8, factors={"general": 1.0})
cohort = simulate_cohort(
    300, "schaefer100-7", timepoints=250, keep_timeseries=False, targets=[target], seed=5
)
planted = {frozenset(pair) for pair in cohort.notes["truth"]["targets"]["score"]["pairs"]}
print("planted:", ", ".join("–".join(sorted(pair)) for pair in planted))

# %%
# Occlusion hides one network pair after another and measures how far the out-of-fold correlation falls. The second map, the
# pattern, is the covariance of FC with the prediction. Two repeats with other folds show how stable the maps are.
table = patch_importance("raw", cohort, ["score"], n_folds=5, n_repeats=2, n_bootstrap=200)
table["planted"] = [
    frozenset(pair) in planted for pair in zip(table["network_a"], table["network_b"], strict=True)
]
print(
    table[["network_a", "network_b", "r", "drop", "drop_low", "drop_high", "pattern", "planted"]]
    .head(5)
    .round(3)
)
print("stability of drops", round(table["stability"].iloc[0], 2))

# %%
# The same table as a figure of the report. Look for stars: they mark intervals that exclude zero.
nerve.plot.interpretation_importance(ReportData(interpretation={"importance": table}))

# %%
# Two small encoders that differ only in the seed. After three epochs their maps hardly agree (`stability`): such maps show
# the random initial weights, not the brain.
encoders = [
    nerve.NERVE.from_preset(
        "small",
        dim=16,
        depth=1,
        epochs=3,
        pooling="tokens",
        seed=seed,
        device="cpu",
        init="scaled",
    ).fit(cohort)
    for seed in range(2)
]
weights = network_weights(encoders)
print(
    weights.sort_values("weight", ascending=False).head(5)[
        ["region", "network", "weight", "stability"]
    ]
)
attention = attention_summary(encoders, cohort.subset(range(40)))
print(attention.pairs.sort_values("ratio", ascending=False).head(3).round(3))

# %%
# Weights of regions in a glass brain and on the cortical surface that nilearn ships.
nerve.plot.interpretation_brain(ReportData(interpretation={"network_weights": weights}))

# %%
# In some models the weights are the same for every region. A second map works for every NERVE model: it hides one region
# after another, and measures how much the features of a participant change.
regions = region_occlusion(encoders, cohort.subset(range(16)))
print(regions.sort_values("rank").head(5)[["region", "network", "change", "stability"]])
nerve.plot.interpretation_weights(ReportData(interpretation={"region_occlusion": regions}))
plt.show()
