"""Draw the picture that heads the README, docs/images/patch_layout.svg and .png: `python tools/readme_picture.py`."""

from pathlib import Path

from nerve._utils.files import write_text
from nerve.data.simulate import simulate_cohort
from nerve.report import plot
from nerve.report.figures import svg

OUT = Path(__file__).parent.parent / "docs" / "images"

# the mean of a few simulated participants, so that the picture shows what FC looks like and needs no data
cohort = simulate_cohort(n=24, timepoints=300, parcellation="schaefer100-17", seed=0)
figure = plot.patch_layout(cohort)
OUT.mkdir(parents=True, exist_ok=True)
write_text(OUT / "patch_layout.svg", svg(figure))
figure.savefig(OUT / "patch_layout.png", dpi=160, facecolor="white")
