"""Make the tables of docs/reliability.md on what intervals and comparisons mean.

`python -m studies.nulls --page` simulates cohorts where the truth is known and evaluates them as the package does: kernel ridge with λ by
inner folds, 10 folds, families whole. Three numbers and three classes are predicted in each cohort, by rows A and B, which are equal by
construction, and by C, which sees less of the signal. "No signal" means that nothing can be predicted. Coverage is how often an interval of A
holds the r (or AUC) that its models have in new participants; size is how often a test calls A and B different at .05, power how often it
calls A and C different. Nothing but simulated data is read. Twenty minutes on one core that does nothing else.
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
from nerve.evaluation.cross_validation import out_of_fold_predictions
from nerve.evaluation.feature_sets import GivenNumbers
from nerve.evaluation.folds import strata_of, stratified_folds
from nerve.evaluation.kernel_ridge import KernelRidge
from nerve.evaluation.statistics import compare, score_table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reliability.md"
SIZES = (60, 100, 200, 400)
N_FOLDS = 10
N_TARGETS = 3  # numbers, and as many classes
N_NEW = 500  # participants in whom models are tested, for the truth
N_RESAMPLES = 300
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
        self.patterns = rng.normal(size=(2 * N_TARGETS, 60))
        self.mean = 2 * rng.normal(size=60)

    def draw(
        self, families: np.ndarray, rng: np.random.Generator
    ) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
        """Targets and the features of each row, of participants in these families."""
        n_targets, n_features = self.patterns.shape
        latent = drawn_in_families(families, n_targets, rng)
        noise = drawn_in_families(families, n_targets, rng)
        values = np.sqrt(self.explained) * latent + np.sqrt(1 - self.explained) * noise
        targets = pd.DataFrame(values, columns=[f"number {k}" for k in range(n_targets)])
        for k in range(N_TARGETS, n_targets):
            targets = targets.rename(columns={f"number {k}": f"class {k}"})
            targets[f"class {k}"] = (targets[f"class {k}"] > 0).astype(float)
        shared = drawn_in_families(families, n_features, rng)
        features = {}
        for row, strength in STRENGTH.items():
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
    strata = np.column_stack([strata_of(targets[name], 5) for name in targets])
    folds = stratified_folds(strata, N_FOLDS, groups=groups, seed=number)

    truth = {}
    parts = []
    for row, values in features.items():
        model = KernelRidge()
        part = out_of_fold_predictions(
            model, GivenNumbers(values=values), targets, folds, groups=groups
        )
        parts.append(part.assign(row=row))
        train = folds != 0
        model.fit(
            values[train],
            targets[train].to_numpy(),
            groups=None if groups is None else groups[train],
        )
        predicted = model.predict(new_features[row])
        for place, name in enumerate(targets):
            truth[row, name] = score_of(name, new_targets[name], predicted[:, place])
    table = pd.concat(parts, ignore_index=True)
    table = table.assign(cohort="simulated", participant=table["position"])
    family_of = None if groups is None else dict(enumerate(families))

    own_rows = table[table["row"] == "A"]
    scores = score_table(own_rows, N_RESAMPLES, groups=family_of).set_index("target")
    equal = compare(table, "A", "B", N_RESAMPLES, groups=family_of).set_index("target")
    planted = compare(table, "A", "C", N_RESAMPLES, groups=family_of).set_index("target")
    records = []
    for name in targets:
        metric = metric_of(name)
        own = scores.loc[name]
        record = {
            "metric": metric,
            "score": own[metric],
            "fold_mean": own["r_fold_mean"] if metric == "r" else np.nan,
            "truth": truth["A", name],
            "low": own[f"{metric}_low"],
            "high": own[f"{metric}_high"],
            "low_cv": own[f"{metric}_low_cv"],
            "high_cv": own[f"{metric}_high_cv"],
        }
        for other, compared in (("B", equal), ("C", planted)):
            pair = table[(table["target"] == name) & table["row"].isin(["A", other])]
            record[f"{other} bootstrap"] = compared.loc[name, "p"]
            record[f"{other} corrected"] = compared.loc[name, "p_cv"]
            record |= {f"{other} {test}": p for test, p in alternatives(pair, families).items()}
        records.append(record)
    return pd.DataFrame(records)


def metric_of(target: str) -> str:
    """What a target is scored by."""
    return "r" if target.startswith("number") else "auc"


def score_of(target: str, observed: pd.Series, predicted: np.ndarray) -> float:
    """r of numbers, AUC of classes."""
    if metric_of(target) == "r":
        return bootstrap.correlation(observed, predicted)
    once = np.ones((1, len(observed)))
    return float(bootstrap.weighted_auc(once, observed.to_numpy() == 1, predicted)[0])


def alternatives(pair: pd.DataFrame, families: np.ndarray) -> dict[str, float]:
    """p of three other tests of two rows; `pair` holds the predictions of both."""
    first, second = (part for _, part in pair.groupby("row", sort=True))
    first = first.set_index("position")
    second = second.set_index("position").loc[first.index]
    observed = first["observed"].to_numpy()
    predicted = np.column_stack([first["predicted"], second["predicted"]])  # (n, 2)
    errors = (predicted - observed[:, None]) ** 2
    fold = first["fold"].to_numpy()
    of_r = []
    of_errors = []
    for label in np.unique(fold):
        members = fold == label
        once = np.ones((1, members.sum()))
        both = np.column_stack([observed[members], observed[members]])
        r = bootstrap.weighted_correlations(once, both, predicted[members])[0]
        of_r.append(r[0] - r[1])
        of_errors.append((errors[members, 0] - errors[members, 1]).mean())
    return {
        "folds_r": nadeau_bengio_p(np.array(of_r)),
        "folds_error": nadeau_bengio_p(np.array(of_errors)),
        "exchange": exchange_p(first, second, families),
    }


def nadeau_bengio_p(differences: np.ndarray) -> float:
    """Two-sided p of Nadeau and Bengio's corrected t over the folds of one cross-validation."""
    k = len(differences)
    spread = differences.std(ddof=1) * np.sqrt(1 / k + 1 / (k - 1))
    if spread == 0:
        return 1.0
    return float(2 * student_t.sf(abs(differences.mean()) / spread, k - 1))


def exchange_p(first: pd.DataFrame, second: pd.DataFrame, families: np.ndarray) -> float:
    """Two-sided p of exchanging the standardised predictions of two rows per family."""
    own_families = families[first.index.to_numpy()]
    rng = np.random.default_rng(0)
    exchanged = rng.random((N_RESAMPLES, families.max() + 1))[:, own_families] < 0.5
    exchanged[0] = False  # the first is as it was observed
    a = standardised(first["predicted"])
    b = standardised(second["predicted"])
    observed = standardised(first["observed"])
    left = np.where(exchanged, b, a)
    right = np.where(exchanged, a, b)
    differences = rows_with(left, observed) - rows_with(right, observed)
    as_large = np.abs(differences) >= abs(differences[0]) - 1e-12
    return float(as_large.mean())


def standardised(values: pd.Series) -> np.ndarray:
    """Values of mean 0 and spread 1."""
    centred = values.to_numpy(float) - values.mean()
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
            fold_mean = f"{part['fold_mean'].mean():.2f}" if metric == "r" else ""
            words = [
                *place_words(cell, str(metric)),
                f"{truth:.2f}",
                f"{part['score'].mean():.2f}",
                fold_mean,
                f"{paper.mean():.0%}",
                f"{(part['high'] - part['low']).mean() / 2:.2f}",
                f"{holding.mean():.0%}",
                f"{(part['high_cv'] - part['low_cv']).mean() / 2:.2f}",
            ]
            lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines).replace("-0.", "−0.").replace("%", " %")


def comparison_table(draws: dict[Cell, pd.DataFrame]) -> str:
    """How often tests call rows different, as Markdown."""
    tests = ("bootstrap", "exchange", "folds_r", "folds_error", "corrected")
    lines = [
        "| n | families | signal | score | rows | paper's bootstrap | exchanged predictions "
        "| t over folds, r | t over folds, squared error | the one that holds |",
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
    parser.add_argument("--cohorts", type=int, default=70, help="of each kind; 3 draws in each")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--page", action="store_true", help="Put the tables into the page.")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    cells = [Cell(*kind) for kind in product(args.sizes, (False, True), (False, True))]
    largest_first = sorted(cells, key=lambda cell: -cell.n)
    work = Parallel(n_jobs=args.jobs, return_as="generator")(
        delayed(simulate_cell)(cell, args.cohorts, args.out) for cell in largest_first
    )
    bar = progress_bar(work, label="simulating", unit="kinds", total=len(cells))
    by_cell = dict(zip(largest_first, bar, strict=True))
    draws = {cell: by_cell[cell] for cell in cells}
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
