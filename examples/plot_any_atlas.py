"""
One effect, three atlases
=========================

For users with cohorts in different atlases. Three simulated cohorts have the same planted effect, each in another atlas. A model
that is trained on the first predicts participants of the other two, after their FC is resampled to the same regions.
"""

# %%
# Three cohorts of different participants. All are simulated in the same 400 small regions; `seen_in` averages these into the
# regions of another atlas. `p_factor` follows FC between three pairs of networks.
import matplotlib.pyplot as plt
import numpy as np

import nerve
from nerve.data.common_space import mean_correlation
from nerve.data.resampling import Resampling
from nerve.data.simulate import simulate_cohort
from nerve.methods.tangent import TangentSpace

common = {"parcellation": "schaefer400-17", "keep_timeseries": False}
north = simulate_cohort(120, seed=1, name="north", seen_in="schaefer200-17", **common)
south = simulate_cohort(60, seed=2, name="south", seen_in="cc200", **common)
west = simulate_cohort(60, seed=3, name="west", seen_in="shen268", **common)
for cohort in (north, south, west):
    print(cohort)

# %%
# Every new region is an average of nearby ones, weighted by the distance of their centres. `report` says how near they are.
resampling = Resampling.between(south.parcellation, "schaefer100-17")
print(f"width {resampling.width:.1f} mm")
print(resampling.report().sort_values("nearest_mm").tail(3).round(1).to_string(index=False))

# %%
# Group means of the three cohorts in the same regions, and the distance from each new region to its nearest source region.
# Look for group means that do not resemble the first.
carried = [cohort.resample("schaefer100-17") for cohort in (north, south, west)]
figure, axes = plt.subplots(1, 4, figsize=(13, 3.4), layout="constrained")
for axis, cohort in zip(axes, carried, strict=False):
    image = axis.imshow(np.asarray(cohort).mean(axis=0), cmap="RdBu_r", vmin=-0.6, vmax=0.6)
    r = mean_correlation(carried[0], cohort)
    axis.set(xticks=[], yticks=[], title=f"{cohort.name}: r = {r:.2f} with north")
figure.colorbar(image, ax=axes[2], label="mean FC")
axes[3].set_axis_off()
axes[3].set_title("south: mm to the nearest source")
figure.draw_without_rendering()  # nilearn takes the place that the axis has now
figure.set_layout_engine("none")

centres = resampling.target.coordinates
try:
    from nilearn.plotting import plot_markers
except ImportError:
    axes[3].scatter(*centres[:, :2].T, c=resampling.nearest, s=14)
    axes[3].set_aspect("equal")
else:
    plot_markers(
        resampling.nearest,
        centres,
        node_size=14,
        node_cmap="viridis",
        display_mode="z",
        figure=figure,
        axes=axes[3],
    )
plt.show()

# %%
# Train in one atlas, predict in the others. Labels of the other two are not used. Each cohort is whitened by its own mean FC
# (`recentre="cohort"`). As a control, the same is done five times with the labels of the training cohort in random order.
protocol = nerve.Protocol(targets="p_factor", motion="none")


def transfer(training):
    """Correlation of predicted and true p_factor, in each of the two other cohorts."""
    model = nerve.KeptModel(TangentSpace(recentre="cohort"), protocol).fit(training)
    correlations = []
    for tested in carried[1:]:
        predicted = model.predict(tested)["predicted"]
        correlations.append(np.corrcoef(predicted, tested.participants["p_factor"])[0, 1])
    return correlations


learned = transfer(carried[0])
rng = np.random.default_rng(0)
controls = []
for _ in range(5):
    shuffled = carried[0].subset(np.arange(len(carried[0])))
    labels = shuffled.participants["p_factor"].to_numpy()
    shuffled.participants["p_factor"] = rng.permutation(labels)
    controls.append(transfer(shuffled))

figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
places = np.arange(2)
axis.bar(places, learned, 0.5, label="learned in north")
axis.plot(places, np.transpose(controls), "o", color="0.4")
axis.plot([], [], "o", color="0.4", label="labels shuffled")
axis.axhline(0, color="black", linewidth=0.8)
axis.set(xticks=places, xticklabels=["south (CC200)", "west (Shen-268)"], ylabel="r with p_factor")
axis.legend()
print("learned", np.round(learned, 2), "shuffled, mean", np.mean(controls, axis=0).round(2))
plt.show()
