"""Do labels of other sites help with few labels here? Meta-matching between the sites of ABIDE.

`python -m studies.metamatching --data FOLDER` writes OUT/metamatching.tsv and prints the table;
`--page` puts it into docs/attempts.md. In three draws, half of the sites are the source and the
others the target. Kernel ridge learns each phenotype of the source from tangent vectors (He et al.
2022). What these models predict for participants of the target are the features of the target.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from studies._cohorts import DATA, read_abide
from studies._tables import (
    DOCS,
    TARGETS,
    Rows,
    fill,
    markdown_table,
    score_few_labels,
    target_heads,
)

import nerve
from nerve._utils.errors import NerveWarning
from nerve._utils.files import write_text, write_tsv
from nerve._utils.linalg import rotate_to_zero_sum, unit_rows
from nerve.evaluation import KernelRidge
from nerve.evaluation.covariates import Design
from nerve.methods import make_method

PAGE = DOCS / "attempts.md"
# SRS is left out: it would be diagnosis under another name
PHENOTYPES = ["age", "sex", "diagnosis", "FIQ", "func_mean_fd"]
CATEGORIES = ["sex", "diagnosis", "site"]
LABELLED = (25, 50, 100)
N_DRAWS_OF_SITES = 3


class SourceModels:
    """Kernel ridge of phenotypes on the tangent vectors of the source.

    Parameters
    ----------
    source : Cohort
        The participants whose phenotypes are known.
    """

    def __init__(self, source: nerve.Cohort) -> None:
        self.tangent = make_method("tangent").fit(source)
        self.phenotypes = phenotypes_of(source)
        vectors = self.tangent.transform(source)
        self.mean = vectors.mean(axis=0)
        self.units = unit_rows(vectors - self.mean)
        self.kernel = (self.units @ self.units.T).astype(float)  # (source, source)

    def kernel_with(self, target: nerve.Cohort) -> np.ndarray:
        """Return the kernel between other participants and the source, (target, source)."""
        units = unit_rows(self.tangent.transform(target) - self.mean)
        return (units @ self.units.T).astype(float)

    def predict(self, columns: list[str], kernel: np.ndarray) -> np.ndarray:
        """Predict phenotypes in units of their standard deviation in the source.

        Parameters
        ----------
        columns : list of str
            The phenotypes; a categorical one becomes one column per category.
        kernel : (target, source) array

        Returns
        -------
        (target, phenotypes) array
        """
        table = self.phenotypes[columns]
        values = Design().fit(table).transform(table)
        values = values[:, values.std(axis=0) > 0]
        ridge = KernelRidge("precomputed").fit(self.kernel, values / values.std(axis=0))
        return ridge.predict(kernel)


def phenotypes_of(cohort: nerve.Cohort) -> pd.DataFrame:
    """Return phenotypes and site, with categories as text."""
    phenotypes = cohort.participants[[*PHENOTYPES, "site"]].copy()
    for name in CATEGORIES:
        phenotypes[name] = phenotypes[name].astype(str)
    return phenotypes


def keep_magnitude(predicted: np.ndarray) -> np.ndarray:
    """Add a constant column and rotate, so that the correlation kernel sees how large rows are."""
    ones = np.ones(len(predicted))
    return rotate_to_zero_sum(np.column_stack([predicted, ones]))


def score_draw(cohort: nerve.Cohort, seed: int) -> Rows:
    """Yield scores with few labels of the target, for one draw of source sites."""
    sites = sorted(cohort.participants["site"].unique())
    drawn_sites = np.random.default_rng(seed).permutation(sites)[: len(sites) // 2]
    is_source = cohort.participants["site"].isin(drawn_sites).to_numpy()
    source = cohort.subset(np.flatnonzero(is_source))
    target = cohort.subset(np.flatnonzero(~is_source))

    tangent_64 = make_method("tangent", settings={"n_components": 64})
    shrunk_of_both = make_method("shrunk").fit(cohort)
    references = {
        "tangent space, 64": tangent_64.fit_transform(target),
        "shrunk tangent space, of source and target": shrunk_of_both.transform(target),
    }
    yield from score_few_labels(target, references, LABELLED)

    models = SourceModels(source)
    kernel = models.kernel_with(target)
    for phenotype in TARGETS:
        others = [name for name in PHENOTYPES if name != phenotype]
        columns_of = {
            "other phenotypes": others,
            "other phenotypes and site": [*others, "site"],
            "all": [*others, phenotype],
            "this phenotype alone": [phenotype],
        }
        feature_sets = {}
        for name, columns in columns_of.items():
            predicted = models.predict(columns, kernel)
            feature_sets[f"meta-matching, {name}"] = keep_magnitude(predicted)
        yield from score_few_labels(target, feature_sets, LABELLED, (phenotype,))


def draws_table(table: pd.DataFrame) -> str:
    """Return the means over draws of sites and labels as Markdown."""
    keys = ["features", "target"]
    means = table.groupby([*keys, "labels"], sort=False)["score"].mean()
    cells = means.map("{:.3f}".format).groupby(keys, sort=False).agg(", ".join)
    rows = []
    for name in table["features"].unique():
        rows.append([name, *[cells[name, target] for target in TARGETS]])
    return markdown_table(["features", *target_heads()], rows)


def main() -> None:
    """Read the command line and make the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=Path("out/metamatching"))
    parser.add_argument("--page", action="store_true", help="Put the table into the page.")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NerveWarning)
    cohort = read_abide(args.data)
    rows = []
    for seed in range(N_DRAWS_OF_SITES):
        for row in score_draw(cohort, seed):
            rows.append({"split": seed, **row})
    table = pd.DataFrame(rows)
    write_tsv(args.out / "metamatching.tsv", table)
    text = draws_table(table)
    print(text)
    if args.page:
        write_text(PAGE, fill(PAGE.read_text(), "metamatching", text))


if __name__ == "__main__":
    main()
