"""
Fine-tune a pretrained encoder
==============================

A head on the tokens of NERVE, trained with the target: with a frozen encoder, with the whole encoder, and with the same
network from random weights. Kernel ridge on frozen features and on raw FC stand beside it.
"""

# %%
# Two hundred simulated participants, of whom nothing learns from the last fifth. `p_factor` follows FC with a true
# correlation of 0.6. The encoder is pretrained without labels.
import matplotlib.pyplot as plt
import numpy as np

import nerve

cohort = nerve.simulate_cohort(200, "schaefer100-7", timepoints=150, seed=0, keep_timeseries=False)
n_training = 4 * len(cohort) // 5
training, new = cohort[:n_training], cohort[n_training:]
encoder = nerve.NERVE.from_preset("small", view="fc", epochs=10, seed=0, device="cpu").fit(training)

# %%
# `layers=0` trains the head only. The inner participants, a fifth of those given, decide when to stop.
head = encoder.finetune(training, "p_factor", layers=0, epochs=40, device="cpu")
print(head.history_[["epoch", "training_loss", "validation_loss"]].iloc[[0, -1]])
observed = new.participants["p_factor"]
print("head only, r =", round(np.corrcoef(head.predict(new), observed)[0, 1], 2))

# %%
# The same comparison out of fold, with references. A model that has seen the tested participants without labels says so.
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
# Correlation out of fold, with its interval. Look at the row of raw FC before you believe that a network was needed.
figure, axis = plt.subplots(figsize=(5, 2.5))
scores = results.scores
errors = [scores["r"] - scores["r_low"], scores["r_high"] - scores["r"]]
axis.errorbar(scores["r"], scores["row"], xerr=np.array(errors), fmt="o")
axis.axvline(0, color="grey", linewidth=0.8)
axis.set(xlabel="r out of fold")
figure.tight_layout()
