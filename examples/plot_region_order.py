"""
Region order, the silent error
==============================

For users who read matrices without labels. The same Schaefer parcels come in 7-network and in 17-network order. A matrix that
is read in the wrong order causes no error message. This example shows the effect, how `nerve check` detects it, and why
`nerve` matches regions by label.
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
# Mixing up the two orders gives right matrices with wrong labels. Look for blocks along the diagonal.
mistaken = nerve.Cohort(seven.connectivity, seven.participants, "schaefer100-17", name="mistaken")
figure, axes = plt.subplots(1, 2, figsize=(8, 3.6))
for axis, cohort, title in zip(
    axes, (seventeen, mistaken), ("as it should be", "in the wrong order"), strict=True
):
    axis.imshow(cohort.connectivity.mean(axis=0), cmap="RdBu_r", vmin=-0.6, vmax=0.6)
    axis.set(title=f"Mean FC, {title}", xlabel="Region", ylabel="Region")
figure.tight_layout()

# %%
# `nerve check` compares FC within networks with FC between them, in the stated order and in the other known orders.
for name, cohort in {"right": seventeen, "mistaken": mistaken}.items():
    quality = check_cohort(cohort)
    row = quality.table.set_index("check").loc["region order"]
    print(f"{name}: {row['verdict']}; {row['value']}; {row['detail']}")

# %%
# With the right labels the order does not matter: `align` restores it exactly.
back = seven.align("schaefer100-17")
print("the same matrices:", np.array_equal(back.connectivity, seventeen.connectivity))

# %%
# The idea of NERVE in one figure: with regions sorted by network, FC consists of one patch per pair of networks.
nerve.plot.patch_layout(seventeen)
plt.show()
