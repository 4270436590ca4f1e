"""Make the tables of docs/reliability.md on what intervals and comparisons mean.

`python -m studies.nulls --page` simulates cohorts where the truth is known and evaluates them as the package does: kernel ridge with λ by
inner folds, 10 folds, families whole. Eight numbers and four classes are predicted in each cohort, by rows A and B, which are equal by
construction, and by C, which sees less of the signal. "No signal" means that nothing can be predicted. Coverage is how often an interval of A
holds the r (or AUC) that its models have in new participants; size is how often a test calls A and B different at .05, power how often it
calls A and C different. Nothing but simulated data is read. Six minutes on one core that does nothing else.
"""

from __future__ import annotations

import os

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
from studies.recipe import fill

from nerve._utils.errors import NerveWarning
from nerve._utils.files import read_tsv, write_tsv
from nerve._utils.progress import progress_bar, silent
from nerve.evaluation import bootstrap
from nerve.evaluation.folds import strata_of, stratified_folds
from nerve.evaluation.intervals import corrected_difference, cross_validation_interval
from nerve.evaluation.kernel_ridge import KernelRidge

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reliability.md"
SIZES = (60, 100, 200, 400)
N_FOLDS = 10
N_NUMBERS = 8  # targets that are numbers
N_CLASSES = 4  # targets of two classes
N_NEW = 500  # participants in whom models are tested, for the truth
N_RESAMPLES = 200
EXPLAINED = 0.5  # variance of a target that features can tell, where there is a signal
KIN = 0.5  # correlation of family members, in features and targets
STRENGTH = {"A": 0.3, "B": 0.3, "C": 0.12}  # of the signal in the features of each row
LEVEL = 0.05


class Cell(NamedTuple):
    """A kind of cohort: how many participants, with families or not, with a signal or not."""

    n: int
    families: bool
    signal: bool

    @property
    def name(self) -> str:
        """The name of its file."""
        relatives = "families" if self.families else "unrelated"
        return f"{self.n}-{relatives}-{'signal' if self.signal else 'none'}"


class Population:
    """How targets show in features; the features of all rows share half of their noise.

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
        self.patterns = rng.normal(size=(N_NUMBERS + N_CLASSES, 60))
        self.mean = 2 * rng.normal(size=60)

    def draw(
        self, families: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Targets, numbers first, and the features of each row, of participants in these families."""
        n_targets, n_features = self.patterns.shape
        latent = drawn_in_families(families, n_targets, rng)
        noise = drawn_in_families(families, n_targets, rng)
        values = np.sqrt(self.explained) * latent + np.sqrt(1 - self.explained) * noise
        is_class = np.arange(n_targets) >= N_NUMBERS
        targets = np.where(is_class, values > 0, values).astype(float)
        shared = drawn_in_families(families, n_features, rng)
        features = {}
        for row in self.rows:
            strength = STRENGTH[row]
            own = drawn_in_families(families, n_features, rng)
            brain = np.sqrt(0.5) * shared + np.sqrt(0.5) * own
            features[row] = self.mean + strength * latent @ self.patterns + brain
        return targets, features


def drawn_in_families(families: np.ndarray, n_columns: int, rng: np.random.Generator) -> np.ndarray:
    """Standard normal columns, correlated by `KIN` among members of a family."""
    common = rng.normal(size=(families.max() + 1, n_columns))[families]
    own = rng.normal(size=(len(families), n_columns))
    if families.max() + 1 == len(families):
        return own
    return np.sqrt(KIN) * common + np.sqrt(1 - KIN) * own


def draw_families(n: int, families: bool, rng: np.random.Generator) -> np.ndarray:
    """Family of each participant: of one to three members, or everyone alone."""
    if not families:
        return np.arange(n)
    return np.repeat(np.arange(n), rng.choice([1, 2, 3], size=n))[:n]


def evaluate_cohort(cell: Cell, number: int) -> pd.DataFrame:
    """Scores, truth, intervals and p of one simulated cohort; a row per target."""
    rng = np.random.default_rng([number, *cell])
    population = Population(cell.signal, rng)
    families = draw_families(cell.n, cell.families, rng)
    targets, features = population.draw(families, rng)
    new_targets, new_features = population.draw(np.arange(N_NEW), rng)
    groups = families if cell.families else None
    strata = np.column_stack([strata_of(column, 5) for column in targets.T])
    folds = stratified_folds(strata, N_FOLDS, groups=groups, seed=number)

    predicted = {row: np.zeros_like(targets) for row in features}
    truth = np.zeros(targets.shape[1])  # of row A
    for fold in range(N_FOLDS):
        test = folds == fold
        train = ~test
        training_groups = None if groups is None else groups[train]
        for row, values in features.items():
            model = KernelRidge().fit(values[train], targets[train], groups=training_groups)
            predicted[row][test] = model.predict(values[test])
            if fold == 0 and row == "A":
                once = np.ones((1, N_NEW))
                of_new = model.predict(new_features[row])
                for place in range(targets.shape[1]):
                    metric = metric_of(place)
                    observed = new_targets[:, place]
                    truth[place] = resampled(metric, once, observed, of_new[:, place])[0]

    counts = bootstrap.resample_counts(cell.n, N_RESAMPLES, seed=42, families=groups)
    records = []
    for place, observed in enumerate(targets.T):
        own = {row: values[:, place] for row, values in predicted.items()}
        records.append(
            {"truth": truth[place]}
            | judge(metric_of(place), observed, own, folds, families, counts)
        )
    return pd.DataFrame(records)


def judge(
    metric: str,
    observed: np.ndarray,
    predicted: dict[str, np.ndarray],
    folds: np.ndarray,
    families: np.ndarray,
    counts: np.ndarray,
) -> dict[str, float | str]:
    """Both intervals of A, and the p of every test of A with B and with C, for one target."""
    once = np.ones((1, len(observed)))
    n_units = families.max() + 1
    scores = {}
    resamples = {}
    for row, values in predicted.items():
        scores[row] = float(resampled(metric, once, observed, values)[0])
        resamples[row] = resampled(metric, counts, observed, values)
    fold_mean = float(np.mean(fold_scores(metric, observed, predicted["A"], folds)))
    low, high = bootstrap.interval(resamples["A"])
    # 2 AUC − 1 is 0 by chance, as r is
    factor, shift = (1, 0) if metric == "r" else (2, 1)
    ends = cross_validation_interval(
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
        "low_cv": (ends[0] + shift) / factor,
        "high_cv": (ends[1] + shift) / factor,
    }
    for other in [row for row in predicted if row != "A"]:
        difference = scores["A"] - scores[other]
        differences = resamples["A"] - resamples[other]
        _, _, corrected = corrected_difference(difference, differences, N_FOLDS, n_units)
        record[f"{other} bootstrap"] = bootstrap.two_sided_p(differences)
        record[f"{other} corrected"] = corrected
        by_fold = fold_scores(metric, observed, predicted["A"], folds)
        by_fold = by_fold - fold_scores(metric, observed, predicted[other], folds)
        record[f"{other} folds_score"] = nadeau_bengio_p(by_fold)
        errors = (predicted["A"] - observed) ** 2 - (predicted[other] - observed) ** 2
        in_fold = [errors[folds == fold].mean() for fold in range(N_FOLDS)]
        record[f"{other} folds_error"] = nadeau_bengio_p(np.array(in_fold))
        record[f"{other} exchange"] = exchange_p(
            observed, predicted["A"], predicted[other], families
        )
    return record


def metric_of(place: int) -> str:
    """What a target is scored by."""
    return "r" if place < N_NUMBERS else "auc"


def resampled(
    metric: str, counts: np.ndarray, observed: np.ndarray, predicted: np.ndarray
) -> np.ndarray:
    """r of numbers, AUC of classes, in every resample."""
    if metric == "r":
        columns = observed[:, None], predicted[:, None]
        return bootstrap.weighted_correlations(counts, *columns)[:, 0]
    return bootstrap.weighted_auc(counts, observed == 1, predicted)


def fold_scores(
    metric: str, observed: np.ndarray, predicted: np.ndarray, folds: np.ndarray
) -> np.ndarray:
    """The score in each fold; an AUC of a fold without both classes is left out."""
    values = []
    for fold in range(N_FOLDS):
        members = folds == fold
        once = np.ones((1, members.sum()))
        values.append(resampled(metric, once, observed[members], predicted[members])[0])
    values = np.array(values)
    return values[np.isfinite(values)]


def nadeau_bengio_p(differences: np.ndarray) -> float:
    """Two-sided p of Nadeau and Bengio's corrected t over the folds of one cross-validation."""
    k = len(differences)
    spread = differences.std(ddof=1) * np.sqrt(1 / k + 1 / (k - 1))
    if spread == 0:
        return 1.0
    return float(2 * student_t.sf(abs(differences.mean()) / spread, k - 1))


def exchange_p(
    observed: np.ndarray, first: np.ndarray, second: np.ndarray, families: np.ndarray
) -> float:
    """Two-sided p of exchanging the standardised predictions of two rows per family."""
    rng = np.random.default_rng(0)
    exchanged = rng.random((N_RESAMPLES, families.max() + 1))[:, families] < 0.5
    exchanged[0] = False  # the first is as it was observed
    a = standardised(first)
    b = standardised(second)
    y = standardised(observed)
    differences = rows_with(np.where(exchanged, b, a), y) - rows_with(np.where(exchanged, a, b), y)
    as_large = np.abs(differences) >= abs(differences[0]) - 1e-12
    return float(as_large.mean())


def standardised(values: np.ndarray) -> np.ndarray:
    """Values of mean 0 and spread 1."""
    centred = values - values.mean()
    return centred / max(centred.std(), 1e-12)


def rows_with(predicted: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """r of each row of predictions with what was observed, which is standardised."""
    spread = np.maximum(predicted.std(axis=1), 1e-12)
    return predicted @ observed / len(observed) / spread


def simulate_cell(cell: Cell, n_cohorts: int, folder: Path) -> pd.DataFrame:
    """All cohorts of one kind, kept in the folder; what is there already is read."""
    file = folder / f"{cell.name}-{n_cohorts}.tsv"
    if file.is_file():
        return read_tsv(file)
    with warnings.catch_warnings(), silent():
        warnings.simplefilter("ignore", NerveWarning)
        table = pd.concat([evaluate_cohort(cell, k) for k in range(n_cohorts)], ignore_index=True)
    write_tsv(file, table)
    return table


def coverage_table(draws: dict[Cell, pd.DataFrame]) -> str:
    """How often intervals hold the truth, as Markdown."""
    lines = [
        "| n | families | signal | score | in new participants | mean | mean of folds "
        "| paper's interval covers | half-width | the one that holds covers | half-width |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell, table in draws.items():
        for metric, part in table.groupby("metric", sort=False):
            truth = part["truth"].mean()
            paper = (part["low"] <= truth) & (truth <= part["high"])
            holding = (part["low_cv"] <= truth) & (truth <= part["high_cv"])
            words = [
                *place_words(cell, str(metric)),
                f"{truth:.2f}",
                f"{part['score'].mean():.2f}",
                f"{part['fold_mean'].mean():.2f}",
                f"{paper.mean():.0%}",
                f"{(part['high'] - part['low']).mean() / 2:.2f}",
                f"{holding.mean():.0%}",
                f"{(part['high_cv'] - part['low_cv']).mean() / 2:.2f}",
            ]
            lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines).replace("-0.", "−0.").replace("%", " %")


def comparison_table(draws: dict[Cell, pd.DataFrame]) -> str:
    """How often tests call rows different, as Markdown."""
    tests = ("bootstrap", "exchange", "folds_score", "folds_error", "corrected")
    lines = [
        "| n | families | signal | score | rows | paper's bootstrap | exchanged predictions "
        "| t over folds, r or AUC | t over folds, squared error | the one that holds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell, table in draws.items():
        for metric, part in table.groupby("metric", sort=False):
            for other in ("B", "C") if cell.signal else ("B",):
                rows = "equal" if other == "B" else "A better"
                shares = [f"{(part[f'{other} {test}'] < LEVEL).mean():.0%}" for test in tests]
                words = [*place_words(cell, str(metric)), rows, *shares]
                lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines).replace("%", " %")


def place_words(cell: Cell, metric: str) -> list[str]:
    """What the first columns of both tables say."""
    families = "yes" if cell.families else "no"
    signal = "yes" if cell.signal else "no"
    return [str(cell.n), families, signal, {"r": "r", "auc": "AUC"}[metric]]


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
    cells = [Cell(*kind) for kind in product(args.sizes, (False, True), (False, True))]
    work = Parallel(n_jobs=args.jobs, return_as="generator")(
        delayed(simulate_cell)(cell, args.cohorts, args.out) for cell in cells
    )
    bar = progress_bar(work, label="simulating", unit="kinds", total=len(cells))
    draws = dict(zip(cells, bar, strict=True))
    tables = {"coverage": coverage_table(draws), "comparisons": comparison_table(draws)}
    for table in tables.values():
        print(f"{table}\n")
    if args.page:
        page = PAGE.read_text(encoding="utf-8")
        for name, table in tables.items():
            page = fill(page, name, table)
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
