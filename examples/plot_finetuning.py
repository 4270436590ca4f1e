"""
Fine-tune a pretrained encoder
==============================

For users who ask whether fine-tuning helps. A small network (the head) on the tokens of NERVE is trained with the target: once
with a frozen pretrained encoder, and once with an encoder from random weights. Raw FC with kernel ridge is the reference.
"""

# %%
# Two hundred simulated participants; the last fifth is kept for the test. `p_factor` follows FC with a true correlation of
# 0.6. The encoder is pretrained without labels.
import matplotlib.pyplot as plt
import numpy as np

import nerve

cohort = nerve.simulate_cohort(200, "schaefer100-7", timepoints=150, seed=0, keep_timeseries=False)
n_training = 4 * len(cohort) // 5
training, new = cohort[:n_training], cohort[n_training:]
encoder = nerve.NERVE.from_preset("small", view="fc", epochs=10, seed=0, device="cpu").fit(training)

# %%
# `layers=0` trains the head only. A fifth of the given participants is held out and decides when to stop.
head = encoder.finetune(training, "p_factor", layers=0, epochs=40, device="cpu")
print(head.history_[["epoch", "training_loss", "validation_loss"]].iloc[[0, -1]])
observed = new.participants["p_factor"]
print("head only, r =", round(np.corrcoef(head.predict(new), observed)[0, 1], 2))

# %%
# The same comparison in cross-validation, with raw FC as reference. The column `scope` says which models saw the tested
# participants in pretraining.
rows = {
    "raw FC": "raw",
    "head only": nerve.methods.make_method(
        "finetune", "small", {"pretrained": encoder, "layers": 0, "epochs": 40}, device="cpu"
    ),
    "from random weights": nerve.methods.make_method(
        "finetune", "small", {"layers": "all", "epochs": 5}, device="cpu"
    ),
}
results = nerve.evaluate(rows, training, "p_factor", ["age"], motion="none", n_folds=3)
print(results.scores[["row", "target", "r", "r_low", "r_high", "scope"]])

# %%
# Correlation out of fold, with its interval. Look whether a network is better than raw FC.
figure, axis = plt.subplots(figsize=(5, 2.5))
scores = results.scores
errors = [scores["r"] - scores["r_low"], scores["r_high"] - scores["r"]]
axis.errorbar(scores["r"], scores["row"], xerr=np.array(errors), fmt="o")
axis.axvline(0, color="grey", linewidth=0.8)
axis.set(xlabel="r out of fold")
figure.tight_layout()
