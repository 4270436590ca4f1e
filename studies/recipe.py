"""What does NERVE learn, and what does its view do? The tables of two pages, each by one command.

`python -m studies.recipe features|strict|floors|masked|labels|stages --data FOLDER` writes
OUT/<table>.tsv and prints the table; `--page` puts it into its page too. `strict` and `floors`
belong to docs/methods/shrunk.md, the others to docs/what-nerve-learns.md. The cohorts are ABIDE and
UCLA, and the two sessions of STAGES. Fitted models are kept in OUT/models and not fitted again.
Times are CPU seconds of one thread.
"""

from __future__ import annotations

import os

# numpy and torch read this once, when they are imported
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from studies._cohorts import DATA, abide_series, read_abide, read_stages_twice, read_ucla
from studies._tables import (
    DOCS,
    LABELLED,
    TARGETS,
    Rows,
    few_labels_table,
    fill,
    markdown_table,
    score_few_labels,
    target_heads,
)

import nerve
from nerve._utils.errors import NerveWarning
from nerve._utils.files import write_text, write_tsv
from nerve._utils.linalg import (
    Shrinkage,
    principal_components,
    rotate_to_zero_sum,
    shrinkage_of,
    unit_rows,
)
from nerve.core.views import N_DIRECTIONS, TangentView
from nerve.evaluation import compare, score_table
from nerve.methods import make_method
from nerve.methods.ppca import PPCA

PAGE = DOCS / "what-nerve-learns.md"
PAGES = {  # of the tables that stand in another page
    "strict": DOCS / "methods" / "shrunk.md",
    "floors": DOCS / "methods" / "shrunk.md",
}
COHORTS = {"abide": read_abide, "ucla": read_ucla}

RAW = "raw FC"
PCA = "PCA of raw FC, 256"
REFERENCES = (RAW, PCA)  # feature sets that `features` and `strict` compare all others with
TANGENT_64 = "tangent space, 64"  # the reference of `labels`
DEFAULT = "**NERVE, `default`**"
MEAN_OF_TOKENS = "`default`, mean of tokens"  # another pooling of the weights of DEFAULT
SAME_NOISE = "median, the same for everyone"  # the reference of `floors`

# label of the row → method, preset and settings
MODELS: dict[str, dict[str, Any]] = {
    PCA: {"method": "pca"},
    "tangent space": {"method": "tangent"},
    TANGENT_64: {"method": "tangent", "n_components": 64},
    "shrunk tangent space": {"method": "shrunk"},
    "shrunk tangent space, 64": {"method": "shrunk", "n_components": 64},
    DEFAULT: {"method": "nerve", "preset": "default"},
    "**NERVE, `small`**": {"method": "nerve", "preset": "small"},
    "`default`, untrained": {"method": "nerve", "preset": "default", "untrained": True},
    "`default`, permuted networks": {
        "method": "nerve",
        "preset": "default",
        "patching": "permuted0",
    },
    MEAN_OF_TOKENS: {"method": "nerve", "preset": "default", "pooling": "mean"},
    "`default`, view `tangent`": {"method": "nerve", "preset": "default", "view": "tangent"},
    "`default`, view `fc`": {"method": "nerve", "preset": "default", "view": "fc"},
}


# fitted models


def fit_or_load(
    args: argparse.Namespace, label: str, cohort_name: str, cohort: nerve.Cohort, seed: int
) -> tuple[Any, float]:
    """Fit a model of `MODELS`, or load it from OUT/models.

    Parameters
    ----------
    args : Namespace
        The command line; `out` is read.
    label : str
        A key of `MODELS`.
    cohort_name : str
        What the folder of the model calls the training participants.
    cohort : Cohort
        The training participants.
    seed : int
        Of the method.

    Returns
    -------
    method : estimator
        Fitted.
    seconds : float
        CPU seconds that the fit took when it was made; 0 without training.
    """
    if label == MEAN_OF_TOKENS:
        method, seconds = fit_or_load(args, DEFAULT, cohort_name, cohort, seed)
        return method.set_params(pooling="mean"), seconds

    settings = dict(MODELS[label])
    name = settings.pop("method")
    preset = settings.pop("preset", "paper")
    is_untrained = settings.pop("untrained", False)
    method = make_method(name, preset, settings, seed=seed, device="cpu")
    if is_untrained:
        # everything that `fit` computes from the participants, but no training step
        dataset = method.begin_training(method.begin_fit(cohort), np.arange(len(cohort)))
        method.finish(method.module_, dataset)
        return method, 0.0

    file_name = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
    folder = args.out / "models" / f"{file_name}_{cohort_name}_{seed}"
    seconds_file = folder / "cpu_seconds.txt"
    if seconds_file.is_file():
        return type(method).load(folder, device="cpu"), float(seconds_file.read_text())
    began = time.process_time()
    method.fit(cohort)
    seconds = time.process_time() - began
    method.save(folder)
    seconds_file.write_text(f"{seconds:.1f}")
    return method, seconds


def labels_of_seed(args: argparse.Namespace, seed: int) -> list[str]:
    """Return the rows of a seed: the first has all, the others only NERVE's presets, in bold."""
    if seed == args.seeds[0]:
        return list(MODELS)
    return [label for label in MODELS if label.startswith("**")]


# features and strict: ten folds


def score_features(args: argparse.Namespace) -> Rows:
    """Yield scores of age, sex and diagnosis out of fold, per cohort, seed and feature set.

    Models were fitted on everyone without labels, except that raw FC needs no fit and its PCA is
    fitted in each fold.
    """
    for name, read_cohort in COHORTS.items():
        if args.only and name not in args.only:
            continue
        cohort = read_cohort(args.data)
        for seed in args.seeds:
            feature_sets: dict[str, Any] = {RAW: "raw", PCA: "pca"}
            for label in labels_of_seed(args, seed):
                if label != PCA:
                    method, _ = fit_or_load(args, label, name, cohort, seed)
                    feature_sets[label] = method.transform(cohort)
            for row in score_and_compare(cohort, feature_sets):
                yield {"cohort": name, "seed": seed, **row}


def score_and_compare(cohort: nerve.Cohort, feature_sets: dict[str, Any]) -> Rows:
    """Yield the score of each feature set and target, and its comparisons with the references."""
    results = nerve.evaluate(feature_sets, cohort, list(TARGETS), motion=None)
    scores = score_table(results.predictions, n_bootstrap=0).set_index(["target", "row"])
    for label in feature_sets:
        comparisons = {}
        for reference in REFERENCES:
            if reference in feature_sets and reference != label:
                comparison = compare(results.predictions, label, reference)
                comparisons[reference] = comparison.set_index("target")
        for target, metric in TARGETS.items():
            row = {
                "features": label,
                "target": target,
                "score": float(scores.loc[(target, label), metric]),
            }
            for reference, comparison in comparisons.items():
                row[f"minus {reference}"] = format_difference(comparison.loc[target])
            yield row


def format_difference(comparison: pd.Series) -> str:
    """Return a difference of scores with its interval in brackets."""
    low = comparison["difference_low"]
    high = comparison["difference_high"]
    return f"{comparison['difference']:+.3f} [{low:.3f}, {high:.3f}]"


class TangentInFolds(BaseEstimator):
    """Tangent vectors, centred and shrunk by what the training participants of a fold tell.

    Parameters
    ----------
    width : int
        How many numbers per participant.
    weights : str
        "shrunk": as `ShrunkTangentSpace`. "none": principal components, as `TangentSpace`.
        "as if seen": participants of the test fold get the weights of those of the training folds.

    Attributes
    ----------
    vectors : dict
        Participant → tangent vector, whitened by the mean of everyone. They belong to the class,
        so that scikit-learn's `clone` does not copy them for each fold.
    n_mistaken : list of int
        Per call of `transform`: how many participants were taken for participants of the fit and
        are not, or the reverse. It belongs to the class, because the folds have clones.
    """

    vectors: ClassVar[dict[str, np.ndarray]] = {}
    n_mistaken: ClassVar[list[int]] = []

    def __init__(self, width: int = N_DIRECTIONS, weights: str = "shrunk") -> None:
        self.width = width
        self.weights = weights

    def fit(self, cohort: nerve.Cohort) -> TangentInFolds:
        """Learn the mean, directions and weights."""
        vectors = self._vectors_of(cohort)
        self.training_ids_ = cohort.participants["participant_id"]
        self.mean_ = vectors.mean(axis=0)
        if self.weights == "none":
            components = principal_components(vectors, self.width)[1]
            ones = np.ones((2, components.shape[1]), np.float32)
            self.shrinkage_ = Shrinkage(components, variances=ones, weights=ones)
            return self
        self.shrinkage_ = shrinkage_of(unit_rows(vectors - self.mean_), N_DIRECTIONS)
        if self.weights == "as if seen":
            weights_of_seen = self.shrinkage_.weights[0]
            both_rows = np.stack([weights_of_seen, weights_of_seen])
            self.shrinkage_ = self.shrinkage_._replace(weights=both_rows)
        return self

    def transform(self, cohort: nerve.Cohort) -> np.ndarray:
        """Return the scores on the directions, (n, width)."""
        units = unit_rows(self._vectors_of(cohort) - self.mean_)
        if self.weights == "shrunk":
            ids = cohort.participants["participant_id"]
            is_new = ~ids.isin(self.training_ids_).to_numpy()
            taken_for_new = self.shrinkage_.are_new(units @ self.shrinkage_.directions)
            self.n_mistaken.append(int((taken_for_new != is_new).sum()))
        return rotate_to_zero_sum(self.shrinkage_.scores(units)[:, : self.width])

    def _vectors_of(self, cohort: nerve.Cohort) -> np.ndarray:
        ids = cohort.participants["participant_id"]
        return np.stack([self.vectors[participant_id] for participant_id in ids])


def score_strict(args: argparse.Namespace) -> Rows:
    """Yield scores in ten folds of ABIDE, with as much as possible learned in the training folds.

    Mean, directions and weights come from the training folds, the whitening from everyone.
    """
    cohort = read_abide(args.data)
    vectors = make_method("tangent").fit_transform(cohort)
    ids = cohort.participants["participant_id"]
    TangentInFolds.vectors = dict(zip(ids, vectors, strict=True))
    feature_sets = {
        RAW: "raw",
        "tangent space": vectors,
        TANGENT_64: TangentInFolds(64, weights="none"),
        "shrunk tangent space": TangentInFolds(),
        "shrunk tangent space, 64": TangentInFolds(64),
        "shrunk, test participants weighted as if seen": TangentInFolds(weights="as if seen"),
    }
    for row in score_and_compare(cohort, feature_sets):
        yield {"cohort": "abide", "seed": 0, **row}
    print(f"mistaken for seen or new, in each fold: {TangentInFolds.n_mistaken}")


# masked: reconstruction of participants who were held out


def score_masked_patches(args: argparse.Namespace) -> Rows:
    """Yield the error of masked patches of a held-out fifth of ABIDE, per seed and NERVE.

    The error is in the view of the row, and relative to that of the training mean. `linear` is
    the error of probabilistic PCA in the same view.
    """
    cohort = read_abide(args.data)
    for seed in args.seeds:
        order = np.random.default_rng(seed).permutation(len(cohort))
        n_test = len(cohort) // 5
        test = cohort.subset(np.sort(order[:n_test]))
        training = cohort.subset(np.sort(order[n_test:]))
        for label in labels_of_seed(args, seed):
            # the decoder does not depend on the pooling
            if MODELS[label]["method"] != "nerve" or label == MEAN_OF_TOKENS:
                continue
            method, seconds = fit_or_load(args, label, "abide-four-fifths", training, seed)
            patching = method.patching_
            training_in_view = apply_view(method, training)
            test_in_view = apply_view(method, test)
            linear = PPCA(patching=method.patching).fit(training_in_view)

            hidden = choose_hidden_patches(len(test), patching.n_patches, seed)
            truth = patching.pack(test_in_view.connectivity)
            mean = np.mean(training_in_view.connectivity, axis=0, dtype=float)
            # NERVE applies its view itself
            by_nerve = patching.pack(method.reconstruct(test, hidden))
            by_linear = patching.pack(linear.reconstruct(test_in_view, hidden))
            error_of_mean = masked_error(patching.pack(mean), truth, hidden, patching)
            yield {
                "features": label,
                "view": method.view_.name,
                "seed": seed,
                "cpu seconds": round(seconds),
                "error": masked_error(by_nerve, truth, hidden, patching) / error_of_mean,
                "linear": masked_error(by_linear, truth, hidden, patching) / error_of_mean,
            }


def apply_view(method: Any, cohort: nerve.Cohort) -> nerve.Cohort:
    """Return a cohort with the matrices that the method cuts into patches."""
    matrices = method.view_.apply(cohort.inputs("fc"))
    return nerve.Cohort(matrices, cohort.participants, cohort.parcellation)


def choose_hidden_patches(n_participants: int, n_patches: int, seed: int) -> np.ndarray:
    """Draw half of the patches of each participant, (participants, hidden patches)."""
    noise = np.random.default_rng(1234 + seed).random((n_participants, n_patches))
    return np.sort(np.argsort(noise, axis=1)[:, n_patches // 2 :], axis=1)


def masked_error(
    packed: np.ndarray, truth: np.ndarray, hidden: np.ndarray, patching: nerve.Patching
) -> float:
    """Return Σ over participants and hidden patches p of ‖x̂_p − x_p‖² / size_p."""
    squares = np.square(packed - truth)  # (participants, entries)
    by_patch = np.add.reduceat(squares, patching.offsets[:-1], axis=1) / patching.sizes
    return float(np.take_along_axis(by_patch, hidden, axis=1).sum())


# labels and floors: few labelled participants


def score_labels(args: argparse.Namespace) -> Rows:
    """Yield scores with few labels, per cohort, feature set, target, number of labels and draw.

    Models were fitted on everyone without labels, with the first seed.
    """
    seed = args.seeds[0]
    for name, read_cohort in COHORTS.items():
        if args.only and name not in args.only:
            continue
        cohort = read_cohort(args.data)
        feature_sets = {RAW: cohort.inputs("upper")}
        for label in MODELS:
            method, _ = fit_or_load(args, label, name, cohort, seed)
            feature_sets[label] = method.transform(cohort)
        yield from score_few_labels(cohort, feature_sets, LABELLED[name])


def score_floors(args: argparse.Namespace) -> Rows:
    """Yield scores with few labels on ABIDE, of shrinkage with other estimates of the noise.

    They differ in how much noise each participant has, and in the floor below which a direction is
    noise.
    """
    cohort = read_abide(args.data)
    upper = np.triu_indices(cohort.n_regions)
    view = TangentView().fit(cohort.connectivity)
    vectors = view.apply(cohort.connectivity)[:, *upper]
    vectors -= vectors.mean(axis=0)
    n_volumes, noise_of_halves = compare_halves(args.data, cohort, view)
    squared_lengths = np.square(vectors).sum(axis=1)
    noise_variances = {
        SAME_NOISE: np.ones(len(cohort)),
        "median, own length": squared_lengths,
        "median, 1 / volumes": 1 / n_volumes,
        "median, halves of the scan": noise_of_halves,
    }
    feature_sets = {"tangent space": vectors}
    for label, variances in noise_variances.items():
        feature_sets[label] = shrink(vectors, variances, "median")
    feature_sets["halves of the scan, their own level"] = shrink(vectors, noise_of_halves, "one")
    for floor in ("60 % quantile", "80 % quantile", "optimal (Gavish and Donoho)"):
        feature_sets[f"{floor}, own length"] = shrink(vectors, squared_lengths, floor)
    yield from score_few_labels(cohort, feature_sets, LABELLED["abide"])


def shrink(vectors: np.ndarray, noise_variances: np.ndarray, floor: str) -> np.ndarray:
    """Return scores of centred vectors, brought to the same noise and shrunk by a floor.

    Parameters
    ----------
    vectors : (n, p) array
    noise_variances : (n,) array
        How much noise each participant has.
    floor : str
        As in `shrinkage_weights`.

    Returns
    -------
    (n, n - 1) array
    """
    scaled = vectors / np.sqrt(noise_variances)[:, None]
    gram = (scaled @ scaled.T).astype(float)
    values, basis = np.linalg.eigh(gram)
    # from large to small, without the smallest, which is the direction of the mean
    largest = values[-1]
    values = np.maximum(values[:0:-1], 1e-12 * largest)
    basis = basis[:, :0:-1]
    weights = shrinkage_weights(values, floor, ratio=len(vectors) / vectors.shape[1])
    return basis * np.sqrt(values) * weights


def shrinkage_weights(values: np.ndarray, floor: str, ratio: float) -> np.ndarray:
    """Return how much of each direction is kept.

    Parameters
    ----------
    values : (k,) array
        Squared singular values, from large to small.
    floor : str
        "median", "60 % quantile" …: of the values. "one": noise has the variance 1. "optimal …":
        Gavish and Donoho's shrinkage of singular values for squared error.
    ratio : float
        Participants over entries.

    Returns
    -------
    (k,) array
    """
    if floor.startswith("optimal"):
        # the median of the values is that of noise alone, which is close to 1 + ratio / 3 for
        # small ratios
        y = values / np.median(values) * (1 + ratio / 3)
        under_root = np.maximum((y - ratio - 1) ** 2 - 4 * ratio, 0)
        return np.where(y > (1 + np.sqrt(ratio)) ** 2, np.sqrt(under_root) / y, 0)
    if floor == "median":
        level = np.median(values)
    elif floor == "one":
        level = 1.0
    else:
        level = np.quantile(values, float(floor.split()[0]) / 100)
    return np.maximum(0, 1 - level / values)


def compare_halves(
    data: Path, cohort: nerve.Cohort, view: TangentView
) -> tuple[np.ndarray, np.ndarray]:
    """Return the noise of each participant of ABIDE, estimated from the halves of the scan.

    Parameters
    ----------
    data : Path
        The folder of the data sets.
    cohort : Cohort
        ABIDE.
    view : TangentView
        Fitted.

    Returns
    -------
    n_volumes : (n,) array
        Of each scan.
    noise : (n,) array
        ‖t₁ − t₂‖² / 4 of the tangent vectors of both halves: the noise of the whole scan.
    """
    upper = np.triu_indices(cohort.n_regions)
    n_volumes = []
    noise = []
    for scan in abide_series(data, cohort.participants["participant_id"]):
        halves = np.array_split(np.asarray(scan, float), 2)
        fc = np.stack([np.nan_to_num(np.corrcoef(half.T)) for half in halves])
        first, second = view.apply(fc)[:, *upper]
        n_volumes.append(len(scan))
        noise.append(np.square(first - second).sum() / 4)
    return np.array(n_volumes, float), np.array(noise)


# stages: two sessions of the same participants


def score_identification(args: argparse.Namespace) -> Rows:
    """Yield how often the two sessions of a participant of STAGES are the most similar ones.

    The sessions are three months apart. All models were fitted on UCLA.
    """
    ucla = read_ucla(args.data)
    first, second = read_stages_twice(args.data)
    n = len(first)
    for seed in args.seeds:
        embeddings = {RAW: (first.inputs("upper"), second.inputs("upper"))}
        for label in labels_of_seed(args, seed):
            method, _ = fit_or_load(args, label, "ucla", ucla, seed)
            embeddings[label] = (method.transform(first), method.transform(second))
        for label, (first_embedding, second_embedding) in embeddings.items():
            # (participants in the first session, participants in the second session)
            similarity = np.corrcoef(first_embedding, second_embedding)[:n, n:]
            second_of_first = similarity.argmax(axis=1)
            first_of_second = similarity.argmax(axis=0)
            share_of_first = (second_of_first == np.arange(n)).mean()
            share_of_second = (first_of_second == np.arange(n)).mean()
            identified = float((share_of_first + share_of_second) / 2)
            yield {"features": label, "seed": seed, "identified": identified}


TABLES: dict[str, Callable[[argparse.Namespace], Rows]] = {
    "features": score_features,
    "strict": score_strict,
    "floors": score_floors,
    "masked": score_masked_patches,
    "labels": score_labels,
    "stages": score_identification,
}


# tables of the pages


def markdown(name: str, table: pd.DataFrame) -> dict[str, str]:
    """Return the blocks of the pages that a table fills: name of the block → Markdown.

    Scores are means over seeds; intervals are those of the first seed.
    """
    if name == "features":
        blocks = {}
        for cohort, part in table.groupby("cohort"):
            blocks[f"features-{cohort}"] = features_table(part)
        return blocks
    if name == "strict":
        return {"strict": features_table(table)}
    if name == "labels":
        blocks = {}
        for cohort, part in table.groupby("cohort"):
            blocks[f"labels-{cohort}"] = few_labels_table(part, reference=TANGENT_64)
        return blocks
    if name == "floors":
        return {"floors": few_labels_table(table, reference=SAME_NOISE)}
    return {name: means_table(table)}


def features_table(table: pd.DataFrame) -> str:
    """Return the table of `features` and `strict`; brackets show the interval minus raw FC."""
    rows = []
    for label, part in table.groupby("features", sort=False):
        cells = [str(label)]
        for target in TARGETS:
            of_target = part[part["target"] == target].sort_values("seed")
            text = f"{of_target['score'].mean():.3f}"
            interval = re.search(r"\[.*\]", str(of_target[f"minus {RAW}"].iloc[0]))
            if interval:
                text += f" {interval[0]}"
            cells.append(text)
        rows.append(cells)
    return markdown_table(["features", *target_heads()], rows)


def means_table(table: pd.DataFrame) -> str:
    """Return the table of `masked` and `stages`: means over seeds."""
    keys = [column for column in ("features", "view", "target") if column in table]
    means = table.groupby(keys, sort=False).mean(numeric_only=True)
    means = means.drop(columns="seed").reset_index()
    rows = []
    for values in means.to_numpy(object):
        rows.append([format_cell(value) for value in values])
    return markdown_table(list(means), rows)


def format_cell(value: Any) -> str:
    """Return words as they are, and numbers with three decimals, or none from 10 on."""
    if not isinstance(value, float):
        return str(value)
    if abs(value) < 10:
        return f"{value:.3f}"
    return f"{value:.0f}"


def main() -> None:
    """Read the command line and make one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=Path("out/recipe"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--only", nargs="*", default=[], help="Cohorts of `features` and `labels`: abide, ucla."
    )
    parser.add_argument("--page", action="store_true", help="Put the table into the page.")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NerveWarning)
    table = pd.DataFrame(list(TABLES[args.table](args)))
    write_tsv(args.out / f"{args.table}.tsv", table)
    for name, text in markdown(args.table, table).items():
        print(f"{name}\n{text}")
        if args.page:
            page = PAGES.get(name, PAGE)
            write_text(page, fill(page.read_text(), name, text))


if __name__ == "__main__":
    main()
