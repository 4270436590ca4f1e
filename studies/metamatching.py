"""Do the labels of other sites help with few labels here? Meta-matching (He et al. 2022) between the sites of ABIDE.

`python -m studies.metamatching --data FOLDER` prints a table, with `--page` into docs/attempts.md. Half of the sites
are the source, the others the target, in three draws of sites. Kernel ridge of the source's tangent vectors on each
of its phenotypes; what these models predict for the participants of the target are their features.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from studies.recipe import DOCS, TARGETS, Rows, _lines, abide, few_labels, fill

import nerve
from nerve._utils.errors import NerveWarning
from nerve._utils.files import write_text, write_tsv
from nerve._utils.linalg import rotate_to_zero_sum, unit_rows
from nerve.evaluation import KernelRidge
from nerve.evaluation.covariates import Design
from nerve.methods import make_method

PAGE = DOCS / "attempts.md"
PHENOTYPES = [
    "age",
    "sex",
    "diagnosis",
    "FIQ",
    "func_mean_fd",
]  # SRS would be diagnosis under another name
LABELLED, SPLITS = (25, 50, 100), 3


class Source:
    """Models of the phenotypes of source participants."""

    def __init__(self, cohort: nerve.Cohort) -> None:
        self.tangent = make_method("tangent").fit(cohort)
        self.table = phenotypes(cohort)
        entries = self.tangent.transform(cohort)
        self.mean = entries.mean(axis=0)
        self.rows = unit_rows(entries - self.mean)
        self.kernel = (self.rows @ self.rows.T).astype(float)

    def towards(self, cohort: nerve.Cohort) -> np.ndarray:
        """The kernel between target and source participants."""
        return (unit_rows(self.tangent.transform(cohort) - self.mean) @ self.rows.T).astype(float)

    def predict(self, columns: list[str], kernel: np.ndarray) -> np.ndarray:
        """(target participants, phenotypes) in units of the source's deviation; one column per category."""
        values = Design().fit(self.table[columns]).transform(self.table[columns])
        values = values[:, values.std(axis=0) > 0]
        return (
            KernelRidge("precomputed").fit(self.kernel, values / values.std(axis=0)).predict(kernel)
        )


def phenotypes(cohort: nerve.Cohort) -> pd.DataFrame:
    """Columns of the table, those that count nothing as words."""
    words = {name: cohort.participants[name].astype(str) for name in ("sex", "diagnosis", "site")}
    return cohort.participants[PHENOTYPES].assign(**words)


def lifted(predicted: np.ndarray) -> np.ndarray:
    """Predictions and a one, turned: the kernel of correlations then still knows how large they are."""
    return rotate_to_zero_sum(np.column_stack([predicted, np.ones(len(predicted))]))


def split(cohort: nerve.Cohort, seed: int) -> Rows:
    """One draw of source and target sites."""
    sites = np.random.default_rng(seed).permutation(sorted(cohort.participants["site"].unique()))
    inside = cohort.participants["site"].isin(sites[: len(sites) // 2]).to_numpy()
    source, target = cohort.subset(np.flatnonzero(inside)), cohort.subset(np.flatnonzero(~inside))
    both = make_method("shrunk").fit(cohort)
    sets = {
        "tangent space, 64": make_method("tangent", settings={"n_components": 64}).fit_transform(
            target
        ),
        "shrunk tangent space, of source and target": both.transform(target),
    }
    yield from few_labels(target, sets, LABELLED)
    models = Source(source)
    kernel = models.towards(target)
    for one in TARGETS:
        others = [name for name in PHENOTYPES if name != one]
        columns = {
            "other phenotypes": others,
            "other phenotypes and site": [*others, "site"],
            "all": [*others, one],
        }
        sets = {
            f"meta-matching, {name}": lifted(models.predict(some, kernel))
            for name, some in columns.items()
        }
        sets["meta-matching, this phenotype alone"] = lifted(models.predict([one], kernel))
        yield from few_labels(target, sets, LABELLED, (one,))


def table(found: pd.DataFrame) -> str:
    """Means over draws and splits."""
    means = (
        found.groupby(["features", "target", "labels"], sort=False)["score"]
        .mean()
        .map("{:.3f}".format)
    )
    cells = means.groupby(["features", "target"], sort=False).agg(", ".join)
    head = [f"{target} {'r' if metric == 'r' else 'AUC'}" for target, metric in TARGETS.items()]
    rows = dict.fromkeys(found["features"])
    return _lines(
        ["features", *head], [[row, *(cells[row, target] for target in TARGETS)] for row in rows]
    )


def main() -> None:
    """Read the command line and make the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data"
    )
    parser.add_argument("--out", type=Path, default=Path("out/metamatching"))
    parser.add_argument("--page", action="store_true", help="Put the table into the page.")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NerveWarning)
    cohort = abide(args.data)
    found = pd.DataFrame(
        [{"split": seed, **row} for seed in range(SPLITS) for row in split(cohort, seed)]
    )
    write_tsv(args.out / "metamatching.tsv", found)
    sys.stdout.write(f"{table(found)}\n")
    if args.page:
        write_text(PAGE, fill(PAGE.read_text(), "metamatching", table(found)))


if __name__ == "__main__":
    main()
