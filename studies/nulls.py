"""Do intervals cover the truth, and do tests keep their level? Tables of docs/reliability.md.

`python -m studies.nulls --page` simulates cohorts whose truth is known and evaluates them as the
package does: kernel ridge with λ from inner folds, 10 folds, families kept together. Eight numbers
and four classes are predicted in each cohort, by rows A and B, which are equal by construction, and
by C, which contains less of the signal. "No signal" means that nothing can be predicted.

Coverage is how often an interval of A contains the r (or AUC) of its models in new participants.
Size is how often a test calls A and B different at .05, power how often it calls A and C different.
Only simulated data are used. It takes six minutes on one core that does nothing else.
"""

from __future__ import annotations

import os

# numpy and torch read this once, when they are imported
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import warnings
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.stats import t as student_t
from studies._tables import DOCS, HEADS, fill

from nerve._utils.errors import NerveWarning
from nerve._utils.files import read_tsv, write_tsv
from nerve._utils.progress import progress_bar, silent
from nerve.evaluation import bootstrap
from nerve.evaluation.folds import strata_of, stratified_folds
from nerve.evaluation.intervals import corrected_difference, cross_validation_interval
from nerve.evaluation.kernel_ridge import KernelRidge

PAGE = DOCS / "reliability.md"
SIZES = (60, 100, 200, 400)
N_FOLDS = 10
N_NUMBERS = 8  # targets that are numbers
N_CLASSES = 4  # targets of two classes
N_FEATURES = 60
N_NEW = 500  # participants on whom models are tested, for the truth
N_RESAMPLES = 200
EXPLAINED = 0.5  # share of a target's variance that is signal, where there is a signal
FAMILY_CORRELATION = 0.5  # of family members, in features and targets
STRENGTH = {"A": 0.3, "B": 0.3, "C": 0.12}  # of the signal in the features of each row
LEVEL = 0.05
# tests of the difference of two rows: column of the table of cohorts → head in the page
TESTS = {
    "bootstrap": "paper's bootstrap",
    "exchange": "exchanged predictions",
    "folds_score": "t over folds, r or AUC",
    "folds_error": "t over folds, squared error",
    "corrected": "the one that holds",
}


class CohortKind(NamedTuple):
    """How many participants a cohort has, whether with families, and whether with a signal."""

    n: int
    families: bool
    signal: bool

    @property
    def name(self) -> str:
        """The name of its file."""
        relatives = "families" if self.families else "unrelated"
        signal = "signal" if self.signal else "none"
        return f"{self.n}-{relatives}-{signal}"


class SimulatedPopulation:
    """How targets show in features. The features of all rows share half of their noise.

    Parameters
    ----------
    signal : bool
        Whether targets depend on what features show.
    rng : Generator
        Of the patterns.
    """

    def __init__(self, signal: bool, rng: np.random.Generator) -> None:
        self.explained = EXPLAINED if signal else 0.0
        # without a signal, A and C would be equal, as A and B are
        self.rows = ("A", "B", "C") if signal else ("A", "B")
        self.patterns = rng.normal(size=(N_NUMBERS + N_CLASSES, N_FEATURES))
        self.mean = 2 * rng.normal(size=N_FEATURES)

    def draw(
        self, families: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Draw participants.

        Parameters
        ----------
        families : (n,) array of int
            The family of each participant.
        rng : Generator

        Returns
        -------
        targets : (n, targets) array
            Numbers first, then classes, 0 or 1.
        features : dict
            Row → (n, features) array.
        """
        n_targets, n_features = self.patterns.shape
        latent = draw_columns(families, n_targets, rng)
        noise = draw_columns(families, n_targets, rng)
        values = np.sqrt(self.explained) * latent + np.sqrt(1 - self.explained) * noise
        is_class = np.arange(n_targets) >= N_NUMBERS
        targets = np.where(is_class, values > 0, values).astype(float)
        shared_noise = draw_columns(families, n_features, rng)
        features = {}
        for row in self.rows:
            own_noise = draw_columns(families, n_features, rng)
            feature_noise = np.sqrt(0.5) * shared_noise + np.sqrt(0.5) * own_noise
            signal = STRENGTH[row] * latent @ self.patterns
            features[row] = self.mean + signal + feature_noise
        return targets, features


def draw_columns(families: np.ndarray, n_columns: int, rng: np.random.Generator) -> np.ndarray:
    """Draw standard normal columns, correlated by `FAMILY_CORRELATION` within families."""
    n_families = families.max() + 1
    of_family = rng.normal(size=(n_families, n_columns))[families]
    own = rng.normal(size=(len(families), n_columns))
    if n_families == len(families):
        return own
    return np.sqrt(FAMILY_CORRELATION) * of_family + np.sqrt(1 - FAMILY_CORRELATION) * own


def draw_families(n: int, with_families: bool, rng: np.random.Generator) -> np.ndarray:
    """Draw the family of each participant: of one to three members, or of one."""
    if not with_families:
        return np.arange(n)
    sizes = rng.choice([1, 2, 3], size=n)
    return np.repeat(np.arange(n), sizes)[:n]


def evaluate_cohort(kind: CohortKind, number: int) -> pd.DataFrame:
    """Simulate one cohort and return its scores, truth, intervals and p, one row per target."""
    rng = np.random.default_rng([number, *kind])
    population = SimulatedPopulation(kind.signal, rng)
    families = draw_families(kind.n, kind.families, rng)
    targets, features = population.draw(families, rng)
    n_targets = targets.shape[1]
    unrelated = np.arange(N_NEW)
    new_targets, new_features = population.draw(unrelated, rng)
    groups = families if kind.families else None
    strata = np.column_stack([strata_of(values, 5) for values in targets.T])
    folds = stratified_folds(strata, N_FOLDS, groups=groups, seed=number)

    predicted = {row: np.zeros_like(targets) for row in features}
    predicted_in_new = np.zeros_like(new_targets)  # by row A
    for fold in range(N_FOLDS):
        test = folds == fold
        train = ~test
        training_groups = None if groups is None else groups[train]
        for row, values in features.items():
            model = KernelRidge().fit(values[train], targets[train], groups=training_groups)
            predicted[row][test] = model.predict(values[test])
            if fold == 0 and row == "A":
                predicted_in_new = model.predict(new_features[row])

    counts = bootstrap.resample_counts(kind.n, N_RESAMPLES, seed=42, families=groups)
    records = []
    for target in range(n_targets):
        metric = metric_of(target)
        truth = score(metric, new_targets[:, target], predicted_in_new[:, target])
        observed = targets[:, target]
        predictions = {row: values[:, target] for row, values in predicted.items()}
        record: dict[str, float | str] = {"truth": truth}
        record |= infer(metric, observed, predictions, folds, families, counts)
        records.append(record)
    return pd.DataFrame(records)


def infer(
    metric: str,
    observed: np.ndarray,
    predicted: dict[str, np.ndarray],
    folds: np.ndarray,
    families: np.ndarray,
    counts: np.ndarray,
) -> dict[str, float | str]:
    """Return both intervals of A, and the p of every test of A with B and with C.

    Parameters
    ----------
    metric : str
        "r" or "auc".
    observed : (n,) array
        One target.
    predicted : dict
        Row → (n,) predictions.
    folds, families : (n,) arrays of int
    counts : (resamples, n) array
        How often each participant is in each resample.

    Returns
    -------
    dict
    """
    n_units = families.max() + 1
    scores = {}
    resamples = {}
    by_fold = {}
    for row, values in predicted.items():
        scores[row] = score(metric, observed, values)
        resamples[row] = resampled_scores(metric, counts, observed, values)
        by_fold[row] = fold_scores(metric, observed, values, folds)
    fold_mean = float(np.mean(by_fold["A"]))
    low, high = bootstrap.interval(resamples["A"])
    # 2 AUC − 1 is 0 by chance, as r is
    factor, shift = (1, 0) if metric == "r" else (2, 1)
    low_cv, high_cv = cross_validation_interval(
        factor * scores["A"] - shift,
        factor * fold_mean - shift,
        factor * float(np.nanstd(resamples["A"])),
        N_FOLDS,
        n_units,
    )
    record: dict[str, float | str] = {
        "metric": metric,
        "score": scores["A"],
        "fold_mean": fold_mean,
        "low": low,
        "high": high,
        "low_cv": (low_cv + shift) / factor,
        "high_cv": (high_cv + shift) / factor,
    }

    squared_error = (predicted["A"] - observed) ** 2
    for other in predicted:
        if other == "A":
            continue
        differences = resamples["A"] - resamples[other]
        _, _, corrected_p = corrected_difference(
            scores["A"] - scores[other], differences, N_FOLDS, n_units
        )
        more_error = squared_error - (predicted[other] - observed) ** 2
        more_error_by_fold = [more_error[folds == fold].mean() for fold in range(N_FOLDS)]
        p = {
            "bootstrap": bootstrap.two_sided_p(differences),
            "corrected": corrected_p,
            "folds_score": nadeau_bengio_p(by_fold["A"] - by_fold[other]),
            "folds_error": nadeau_bengio_p(np.array(more_error_by_fold)),
            "exchange": exchange_p(observed, predicted["A"], predicted[other], families),
        }
        for test, value in p.items():
            record[f"{other} {test}"] = value
    return record


def metric_of(target: int) -> str:
    """Return the metric of a target, by its column."""
    return "r" if target < N_NUMBERS else "auc"


def score(metric: str, observed: np.ndarray, predicted: np.ndarray) -> float:
    """Return r, or the AUC, of predictions."""
    each_once = np.ones((1, len(observed)))
    return float(resampled_scores(metric, each_once, observed, predicted)[0])


def resampled_scores(
    metric: str, counts: np.ndarray, observed: np.ndarray, predicted: np.ndarray
) -> np.ndarray:
    """Return r, or the AUC, in every resample, (resamples,)."""
    if metric == "r":
        return bootstrap.weighted_correlations(counts, observed[:, None], predicted[:, None])[:, 0]
    return bootstrap.weighted_auc(counts, observed == 1, predicted)


def fold_scores(
    metric: str, observed: np.ndarray, predicted: np.ndarray, folds: np.ndarray
) -> np.ndarray:
    """Return the score in each fold; an AUC of a fold without both classes is left out."""
    scores = np.empty(N_FOLDS)
    for fold in range(N_FOLDS):
        in_fold = folds == fold
        scores[fold] = score(metric, observed[in_fold], predicted[in_fold])
    return scores[np.isfinite(scores)]


def nadeau_bengio_p(differences: np.ndarray) -> float:
    """Return the two-sided p of Nadeau and Bengio's corrected t over the folds."""
    k = len(differences)
    spread = differences.std(ddof=1) * np.sqrt(1 / k + 1 / (k - 1))
    if spread == 0:
        return 1.0
    return float(2 * student_t.sf(abs(differences.mean()) / spread, k - 1))


def exchange_p(
    observed: np.ndarray, first: np.ndarray, second: np.ndarray, families: np.ndarray
) -> float:
    """Return the two-sided p of exchanging the standardised predictions of two rows per family."""
    rng = np.random.default_rng(0)
    is_exchanged = rng.random((N_RESAMPLES, families.max() + 1))[:, families] < 0.5
    is_exchanged[0] = False  # the first resample is what was observed
    first = standardise(first)
    second = standardise(second)
    observed = standardise(observed)
    r_first = row_correlations(np.where(is_exchanged, second, first), observed)
    r_second = row_correlations(np.where(is_exchanged, first, second), observed)
    differences = r_first - r_second
    is_as_large = np.abs(differences) >= abs(differences[0]) - 1e-12
    return float(is_as_large.mean())


def standardise(values: np.ndarray) -> np.ndarray:
    """Return values of mean 0 and standard deviation 1."""
    centred = values - values.mean()
    return centred / max(centred.std(), 1e-12)


def row_correlations(predicted: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Correlate each row of predictions, (resamples, n), with standardised observed values, (n,)."""
    spread = np.maximum(predicted.std(axis=1), 1e-12)
    return predicted @ observed / len(observed) / spread


def simulate_kind(kind: CohortKind, n_cohorts: int, folder: Path) -> pd.DataFrame:
    """Evaluate cohorts of one kind, or read the table if it is in the folder already."""
    path = folder / f"{kind.name}-{n_cohorts}.tsv"
    if path.is_file():
        return read_tsv(path)
    with warnings.catch_warnings(), silent():
        warnings.simplefilter("ignore", NerveWarning)
        cohorts = [evaluate_cohort(kind, number) for number in range(n_cohorts)]
    table = pd.concat(cohorts, ignore_index=True)
    write_tsv(path, table)
    return table


def coverage_table(tables: dict[CohortKind, pd.DataFrame]) -> str:
    """Return as Markdown how often intervals contain the truth."""
    lines = [
        "| n | families | signal | score | in new participants | mean | mean of folds "
        "| paper's interval covers | half-width | the one that holds covers | half-width |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, table in tables.items():
        for metric, part in table.groupby("metric", sort=False):
            truth = part["truth"].mean()
            is_covered = (part["low"] <= truth) & (truth <= part["high"])
            is_covered_cv = (part["low_cv"] <= truth) & (truth <= part["high_cv"])
            half_width = (part["high"] - part["low"]).mean() / 2
            half_width_cv = (part["high_cv"] - part["low_cv"]).mean() / 2
            cells = [
                *first_cells(kind, str(metric)),
                f"{truth:.2f}",
                f"{part['score'].mean():.2f}",
                f"{part['fold_mean'].mean():.2f}",
                f"{is_covered.mean():.0%}",
                f"{half_width:.2f}",
                f"{is_covered_cv.mean():.0%}",
                f"{half_width_cv:.2f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines).replace("-0.", "−0.").replace("%", " %")


def comparison_table(tables: dict[CohortKind, pd.DataFrame]) -> str:
    """Return as Markdown how often tests call rows different."""
    heads = ["n", "families", "signal", "score", "rows", *TESTS.values()]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    pairs = {"B": "equal", "C": "A better"}  # the row that A is compared with → the truth
    for kind, table in tables.items():
        for metric, part in table.groupby("metric", sort=False):
            for other, truth in pairs.items():
                if other == "C" and not kind.signal:
                    continue
                cells = [*first_cells(kind, str(metric)), truth]
                for test in TESTS:
                    share = (part[f"{other} {test}"] < LEVEL).mean()
                    cells.append(f"{share:.0%}")
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines).replace("%", " %")


def first_cells(kind: CohortKind, metric: str) -> list[str]:
    """Return the cells with which the rows of both tables begin."""
    families = "yes" if kind.families else "no"
    signal = "yes" if kind.signal else "no"
    return [str(kind.n), families, signal, HEADS[metric]]


def main() -> None:
    """Read the command line, simulate, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("out/nulls"))
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--cohorts", type=int, default=25, help="of each kind")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--page", action="store_true", help="Put the tables into the page.")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    kinds = []
    for n, families, signal in product(args.sizes, (False, True), (False, True)):
        kinds.append(CohortKind(n, families, signal))
    work = Parallel(n_jobs=args.jobs, return_as="generator")(
        delayed(simulate_kind)(kind, args.cohorts, args.out) for kind in kinds
    )
    bar = progress_bar(work, label="simulating", unit="kinds", total=len(kinds))
    tables = dict(zip(kinds, bar, strict=True))
    blocks = {"coverage": coverage_table(tables), "comparisons": comparison_table(tables)}
    for text in blocks.values():
        print(f"{text}\n")
    if args.page:
        page = PAGE.read_text(encoding="utf-8")
        for name, text in blocks.items():
            page = fill(page, name, text)
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
