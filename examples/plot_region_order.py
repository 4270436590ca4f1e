"""
Region order, the silent error
==============================

The same Schaefer parcels come in 7-network and in 17-network order. A matrix read in the wrong one looks like a matrix
and computes like a matrix. Here is what it does, how it is seen, and why `nerve` matches regions by label.
"""

# %%
# A cohort in 17-network order, and the same participants as another program would store them.
import matplotlib.pyplot as plt
import numpy as np

import nerve
from nerve.data.quality import check_cohort

seventeen = nerve.simulate_cohort(
    30, "schaefer100-17", timepoints=150, seed=0, keep_timeseries=False
)
seven = seventeen.align("schaefer100-7")  # the same numbers, rows and columns in the other order

# %%
# The two orders are mixed up: right matrices, wrong labels.
mistaken = nerve.Cohort(seven.connectivity, seven.participants, "schaefer100-17", name="mistaken")
figure, axes = plt.subplots(1, 2, figsize=(8, 3.6))
for axis, cohort, title in zip(
    axes, (seventeen, mistaken), ("as it should be", "in the wrong order"), strict=True
):
    axis.imshow(cohort.connectivity.mean(axis=0), cmap="RdBu_r", vmin=-0.6, vmax=0.6)
    axis.set(title=f"Mean FC, {title}", xlabel="Region", ylabel="Region")
figure.tight_layout()

# %%
# `nerve check` compares FC within networks with FC between them, in the stated order and in the others that it knows.
for name, cohort in {"right": seventeen, "mistaken": mistaken}.items():
    quality = check_cohort(cohort)
    row = quality.table.set_index("check").loc["region order"]
    print(f"{name}: {row['verdict']}; {row['value']}; {row['detail']}")

# %%
# With the right labels the order does not matter: one line brings it back, exactly.
back = seven.align("schaefer100-17")
print("the same matrices:", np.array_equal(back.connectivity, seventeen.connectivity))

# %%
# The idea of NERVE in one picture: with regions sorted by network, FC falls into one patch for each pair of networks.
nerve.plot.patch_layout(seventeen)
plt.show()
