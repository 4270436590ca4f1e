"""Make the tables of docs/what-nerve-learns.md and docs/methods/shrunk.md from real cohorts, each by one command.

`python -m studies.recipe features|strict|floors|masked|labels|stages --data FOLDER` writes OUT/<table>.tsv and prints
the table, with `--page` into its page too. Fitted models are kept in OUT/models and not fitted again. Times are CPU
seconds of one thread.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator

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
from nerve.evaluation import compare, make_feature_set, score_table
from nerve.evaluation.curves import learning_curve
from nerve.evaluation.participants import prepare_participants
from nerve.methods import make_method
from nerve.methods.ppca import PPCA

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = dict.fromkeys(("strict", "floors"), DOCS / "methods" / "shrunk.md")  # the others:
PAGE = DOCS / "what-nerve-learns.md"
TARGETS = {"age": "r", "sex": "auc", "diagnosis": "auc"}
LABELLED = {"abide": (25, 50, 100, 200), "ucla": (25, 50, 100)}
YARDSTICK = "tangent space, 64"
Rows = Iterator[dict[str, Any]]

# ---- participants


def whole(upper: np.ndarray, n_regions: int) -> np.ndarray:
    """(n, R (R - 1) / 2) → (n, R, R) with a unit diagonal."""
    fc = np.ones((len(upper), n_regions, n_regions), np.float32)
    rows, columns = np.triu_indices(n_regions, 1)
    fc[:, rows, columns] = fc[:, columns, rows] = upper
    return fc


def abide(data: Path) -> nerve.Cohort:
    """ABIDE CC200 in Yeo-17 and NonCortical groups, participants without constant regions."""
    folder = data / "abide_cc200"
    table = pd.read_csv(folder / "participants.tsv", sep="\t", na_values="n/a")
    good = (table["n_constant_rois"] == 0).to_numpy()
    ours = ("participant_id", "age", "sex", "diagnosis", "site")
    names = dict(zip(("FILE_ID", "AGE_AT_SCAN", "SEX", "DX_GROUP", "SITE_ID"), ours, strict=True))
    regions = pd.read_csv(folder / "regions.tsv", sep="\t", dtype=str)
    networks = tuple(regions["net17"].fillna("NonCortical"))
    parcellation = nerve.Parcellation(tuple(regions["label"]), networks, name="cc200")
    fc = whole(np.load(folder / "fc_upper_200.npy", mmap_mode="r")[good], 200)
    return nerve.Cohort(
        fc, table[good].reset_index(drop=True).rename(columns=names), parcellation, name="abide"
    )


def ucla(data: Path) -> nerve.Cohort:
    """UCLA, 400 cortical and 19 subcortical regions; diagnosis is any against none."""
    table = pd.read_csv(data / "ucla_cnp" / "participants.tsv", sep="\t", na_values="n/a")
    table["diagnosis"] = np.where(table["diagnosis"] == "CONTROL", "control", "patient")
    fc = whole(np.load(data / "ucla_cnp" / "fc_upper_419.npy"), 419)
    return nerve.Cohort(fc, table, "schaefer400-17+aseg19", name="ucla")


def stages(data: Path) -> list[nerve.Cohort]:
    """The two sessions of the participants who came twice, in the region order of UCLA."""
    sessions = [
        np.load(data / "stages" / f"timeseries_ses-{s}.npz", allow_pickle=False) for s in (1, 2)
    ]
    ids = [key for key in sessions[0].files if key in sessions[1].files]
    order = nerve.load_parcellation("schaefer400-17+aseg19")

    def cohort(session: Any) -> nerve.Cohort:
        series = [session[key] if session[key].shape[0] == 419 else session[key].T for key in ids]
        fc = np.nan_to_num(np.stack([np.corrcoef(one) for one in series])).astype(np.float32)
        return nerve.Cohort(
            fc, pd.DataFrame({"participant_id": ids}), "schaefer400-7+aseg19"
        ).align(order)

    return [cohort(session) for session in sessions]


COHORTS = {"abide": abide, "ucla": ucla}

# ---- models: label → method, preset and settings

MODELS: dict[str, dict[str, Any]] = {
    "PCA of raw FC, 256": {"method": "pca"},
    "tangent space": {"method": "tangent"},
    "tangent space, 64": {"method": "tangent", "n_components": 64},
    "shrunk tangent space": {"method": "shrunk"},
    "shrunk tangent space, 64": {"method": "shrunk", "n_components": 64},
    "**NERVE, `default`**": {"method": "nerve", "preset": "default"},
    "**NERVE, `small`**": {"method": "nerve", "preset": "small"},
    "`default`, untrained": {"method": "nerve", "preset": "default", "untrained": True},
    "`default`, permuted networks": {
        "method": "nerve",
        "preset": "default",
        "patching": "permuted0",
    },
    "`default`, mean of tokens": {
        "method": "nerve",
        "preset": "default",
        "pooling": "mean",
    },  # the same weights
    "`default`, view `tangent`": {"method": "nerve", "preset": "default", "view": "tangent"},
    "`default`, view `fc`": {"method": "nerve", "preset": "default", "view": "fc"},
}


def fitted(
    args: argparse.Namespace, label: str, where: str, cohort: nerve.Cohort, seed: int
) -> tuple[Any, float]:
    """A model from OUT/models, fitted if it is not there, and the CPU seconds that this took."""
    spec = dict(MODELS[label])
    if spec.pop("pooling", None):
        model, seconds = fitted(args, "**NERVE, `default`**", where, cohort, seed)
        return model.set_params(pooling="mean"), seconds
    name, preset, untrained = (
        spec.pop("method"),
        spec.pop("preset", "paper"),
        spec.pop("untrained", False),
    )
    method = make_method(name, preset, spec, seed=seed, device="cpu")
    folder = (
        args.out
        / "models"
        / f"{re.sub(r'[^a-z0-9]+', '-', label.lower()).strip('-')}_{where}_{seed}"
    )
    clock = folder / "cpu_seconds.txt"
    if clock.is_file():
        return type(method).load(folder, device="cpu"), float(clock.read_text())
    began = time.process_time()
    if untrained:  # with all that it takes from the participants, and no step
        source = method.begin_training(method.begin_fit(cohort), np.arange(len(cohort)))
        method.finish(method.module_, source)
        return method, 0.0
    method.fit(cohort)
    seconds = time.process_time() - began
    method.save(folder)
    clock.write_text(f"{seconds:.1f}")
    return method, seconds


def is_nerve(label: str) -> bool:
    """Whether a row has patches to mask."""
    return MODELS[label]["method"] == "nerve"


def labels_of(seed: int, first: int) -> list[str]:
    """The rows of a seed: controls and references have the first only."""
    return [label for label in MODELS if seed == first or label.startswith("**")]


# ---- the tables: each yields rows, and is made Markdown of


def features(args: argparse.Namespace) -> Rows:
    """Age, sex and diagnosis out of fold; what is fitted has seen everyone unlabelled, but for `raw` and `pca`."""
    for name, read in COHORTS.items():
        if args.only and name not in args.only:
            continue
        cohort = read(args.data)
        for seed in args.seeds:
            wanted = [
                label for label in labels_of(seed, args.seeds[0]) if label != "PCA of raw FC, 256"
            ]
            sets: dict[str, Any] = {"raw FC": "raw", "PCA of raw FC, 256": "pca"}
            sets |= {
                label: fitted(args, label, name, cohort, seed)[0].transform(cohort)
                for label in wanted
            }
            yield from ({"cohort": name, "seed": seed, **row} for row in scored(cohort, sets))


def scored(cohort: nerve.Cohort, sets: dict[str, Any]) -> Rows:
    """Scores of every feature set, and the paired bootstrap against raw FC and its components."""
    predictions = nerve.evaluate(sets, cohort, list(TARGETS), motion=None).predictions
    scores = score_table(predictions, n_bootstrap=0).set_index(["target", "row"])
    for label in sets:
        others = [
            other for other in ("raw FC", "PCA of raw FC, 256") if other in sets and other != label
        ]
        found = {other: compare(predictions, label, other).set_index("target") for other in others}
        for target, metric in TARGETS.items():
            row = {
                "features": label,
                "target": target,
                "score": float(scores.loc[(target, label), metric]),
            }
            yield row | {f"minus {other}": interval(found[other].loc[target]) for other in others}


def interval(found: pd.Series) -> str:
    return f"{found['difference']:+.3f} [{found['difference_low']:.3f}, {found['difference_high']:.3f}]"


def masked(args: argparse.Namespace) -> Rows:
    """Masked error of held-out participants of ABIDE, in the view of the row, over that of the training mean."""
    cohort = abide(args.data)
    for seed in args.seeds:
        order = np.random.default_rng(seed).permutation(len(cohort))
        test, training = (
            cohort.subset(np.sort(rows)) for rows in np.split(order, [len(cohort) // 5])
        )
        for label in [
            name for name in labels_of(seed, args.seeds[0]) if is_nerve(name) and "mean" not in name
        ]:
            model, seconds = fitted(args, label, "abide-four-fifths", training, seed)
            inside = [in_view(model, one) for one in (training, test)]
            linear = PPCA(patching=model.patching).fit(inside[0])
            row = {
                "features": label,
                "view": model.view_.name,
                "seed": seed,
                "cpu seconds": round(seconds),
            }
            yield row | {
                "error": masked_error(model, test, *inside, model.patching_, seed),
                "linear": masked_error(linear, inside[1], *inside, model.patching_, seed),
            }


def in_view(model: Any, cohort: nerve.Cohort) -> nerve.Cohort:
    """A cohort whose matrices are those that the model cuts."""
    return nerve.Cohort(
        model.view_.apply(cohort.inputs("fc")), cohort.participants, cohort.parcellation
    )


def masked_error(
    method: Any,
    data: nerve.Cohort,
    training: nerve.Cohort,
    test: nerve.Cohort,
    patching: nerve.Patching,
    seed: int,
) -> float:
    """Σ over participants and masked patches of ‖x̂_p - x_p‖² / size_p, over the same of the training mean."""
    noise = np.random.default_rng(1234 + seed).random((len(test), patching.n_patches))
    hidden = np.sort(np.argsort(noise, axis=1)[:, patching.n_patches // 2 :], axis=1)
    truth = patching.pack(test.connectivity)

    def error(guess: np.ndarray) -> float:
        by_patch = (
            np.add.reduceat(np.square(guess - truth), patching.offsets[:-1], axis=1)
            / patching.sizes
        )
        return float(np.take_along_axis(by_patch, hidden, axis=1).sum())

    mean = patching.pack(np.mean(training.connectivity, axis=0, dtype=float))
    return error(patching.pack(method.reconstruct(data, hidden))) / error(mean)


def labels(args: argparse.Namespace) -> Rows:
    """Few labelled participants; what is fitted has seen everyone unlabelled. The same 20 draws for every row."""
    for name, read in COHORTS.items():
        if args.only and name not in args.only:
            continue
        cohort, seed = read(args.data), args.seeds[0]
        sets = {"raw FC": cohort.inputs("upper")}
        sets |= {
            label: fitted(args, label, name, cohort, seed)[0].transform(cohort) for label in MODELS
        }
        yield from few_labels(cohort, sets, LABELLED[name])


def few_labels(
    cohort: nerve.Cohort,
    sets: dict[str, np.ndarray],
    labelled: tuple[int, ...],
    targets: tuple[str, ...] = tuple(TARGETS),
) -> Rows:
    """A row per feature set, target, number of labels and draw, as `nerve evaluate --labels` draws."""
    protocol = nerve.Protocol(targets=targets, labels=labelled, motion="none", covariates=())
    people, protocol = prepare_participants(cohort, protocol)
    for name, numbers in sets.items():
        feature_set = make_feature_set(numbers, cohort, name).prepare(cohort, people, protocol)
        for row in learning_curve(feature_set, people, protocol).to_dict("records"):
            yield {"cohort": cohort.name, "features": name, **row}


class InFolds(BaseEstimator):
    """Tangent vectors that are known already, shrunk by what the training participants of a fold say."""

    vectors: ClassVar[dict[str, np.ndarray]] = {}  # by participant; whitened by everyone
    mistaken: ClassVar[
        list[int]
    ] = []  # participants whom the scores say to be seen, and are new, or the reverse

    def __init__(self, width: int = N_DIRECTIONS, kind: str = "shrunk") -> None:
        self.width = width
        self.kind = kind

    def of(self, cohort: nerve.Cohort) -> np.ndarray:
        """The vectors of some participants."""
        return np.stack([self.vectors[one] for one in cohort.participants["participant_id"]])

    def fit(self, cohort: nerve.Cohort) -> InFolds:
        """Mean, directions and weights."""
        vectors, self.seen_ = self.of(cohort), cohort.participants["participant_id"]
        self.mean_ = vectors.mean(axis=0)
        if self.kind == "tangent":
            components = principal_components(vectors, self.width)[1]
            self.found_ = Shrinkage(components, *np.ones((2, 2, components.shape[1]), np.float32))
        else:
            self.found_ = shrinkage_of(unit_rows(vectors - self.mean_), N_DIRECTIONS)
        if self.kind == "as if seen":
            self.found_ = self.found_._replace(weights=self.found_.weights[[0, 0]])
        return self

    def transform(self, cohort: nerve.Cohort) -> np.ndarray:
        """Scores."""
        units = unit_rows(self.of(cohort) - self.mean_)
        if self.kind == "shrunk":
            new = ~cohort.participants["participant_id"].isin(self.seen_).to_numpy()
            self.mistaken.append(
                int((self.found_.are_new(units @ self.found_.directions) != new).sum())
            )
        return rotate_to_zero_sum(self.found_.scores(units)[:, : self.width])


def strict(args: argparse.Namespace) -> Rows:
    """Ten folds of ABIDE; mean, directions and weights come from the training folds, the whitening from everyone."""
    cohort = abide(args.data)
    entries = make_method("tangent").fit_transform(cohort)
    InFolds.vectors = dict(zip(cohort.participants["participant_id"], entries, strict=True))
    sets = {
        "tangent space": entries,
        "tangent space, 64": InFolds(64, "tangent"),
        "shrunk tangent space": InFolds(),
        "shrunk tangent space, 64": InFolds(64),
        "shrunk, test participants weighted as if seen": InFolds(kind="as if seen"),
    }
    yield from (
        {"cohort": "abide", "seed": 0, **row} for row in scored(cohort, {"raw FC": "raw", **sets})
    )
    sys.stdout.write(f"mistaken for seen or new, in each fold: {InFolds.mistaken}\n")


def floors(args: argparse.Namespace) -> Rows:
    """Few labels on ABIDE with noise said in other ways: who has how much of it, and where the floor is."""
    cohort = abide(args.data)
    above = np.triu_indices(cohort.n_regions)
    view = TangentView().fit(cohort.connectivity)
    vectors = view.apply(cohort.connectivity)[:, *above]
    vectors -= vectors.mean(axis=0)
    volumes, noise = halves_of(args.data, cohort, view)
    lengths = np.square(vectors).sum(axis=1)
    of_one = {
        "the same for everyone": np.ones(len(cohort)),
        "own length": lengths,
        "1 / volumes": 1 / volumes,
        "halves of the scan": noise,
    }
    sets = {"tangent space": vectors}
    for who, size in of_one.items():
        sets[f"median, {who}"] = shrunk_by(vectors, size, "median")
    sets["halves of the scan, their own level"] = shrunk_by(vectors, noise, "given")
    for floor in ("60 % quantile", "80 % quantile", "optimal (Gavish and Donoho)"):
        sets[f"{floor}, own length"] = shrunk_by(vectors, lengths, floor)
    yield from few_labels(cohort, sets, LABELLED["abide"])


def shrunk_by(vectors: np.ndarray, size: np.ndarray, floor: str) -> np.ndarray:
    """Scores of vectors whose noise has these sizes, brought to the same noise and shrunk by a floor."""
    even = vectors / np.sqrt(size)[:, None]
    values, basis = np.linalg.eigh((even @ even.T).astype(float))
    values, basis = (
        np.maximum(values[:0:-1], 1e-12 * values[-1]),
        basis[:, :0:-1],
    )  # without the mean's
    return basis * np.sqrt(values) * shrinkage(values, floor, len(vectors) / vectors.shape[1])


def shrinkage(values: np.ndarray, floor: str, ratio: float) -> np.ndarray:
    """How much of each direction is kept; `ratio` is participants over entries."""
    if floor.startswith(
        "optimal"
    ):  # of singular values, for squared error; the median is that of the noise alone
        y = (
            values / np.median(values) * (1 + ratio / 3)
        )  # its median is close to 1 + ratio / 3 for small ratios
        inside = np.maximum((y - ratio - 1) ** 2 - 4 * ratio, 0)
        return np.where(y > (1 + np.sqrt(ratio)) ** 2, np.sqrt(inside) / y, 0)
    levels = {"median": np.median(values), "given": 1.0}
    level = levels[floor] if floor in levels else np.quantile(values, float(floor.split()[0]) / 100)
    return np.maximum(0, 1 - level / values)


def halves_of(data: Path, cohort: nerve.Cohort, view: TangentView) -> tuple[np.ndarray, np.ndarray]:
    """Volumes of each participant's scan, and ‖t₁ - t₂‖² / 4 of its halves: the noise of the whole."""
    series = np.load(data / "abide_cc200" / "timeseries_200.npy", mmap_mode="r")
    rows = pd.read_csv(data / "abide_cc200" / "timeseries_rows.tsv", sep="\t").set_index(
        "participant_id"
    )
    rows = rows.loc[cohort.participants["participant_id"]]
    above, noise = np.triu_indices(cohort.n_regions), []
    for first, n in zip(rows["first"], rows["n_volumes"], strict=True):
        scan = np.asarray(series[first : first + n], float)
        fc = np.stack([np.nan_to_num(np.corrcoef(half.T)) for half in np.array_split(scan, 2)])
        one, other = view.apply(fc)[:, *above]
        noise.append(np.square(one - other).sum() / 4)
    return rows["n_volumes"].to_numpy(float), np.array(noise)


def identified(args: argparse.Namespace) -> Rows:
    """Whether two sessions three months apart belong together; everything is fitted on UCLA."""
    other, sessions = ucla(args.data), stages(args.data)
    for seed in args.seeds:
        verbs: dict[str, Callable[[nerve.Cohort], np.ndarray]] = {
            "raw FC": lambda one: one.inputs("upper")
        }
        verbs |= {
            name: fitted(args, name, "ucla", other, seed)[0].transform
            for name in labels_of(seed, args.seeds[0])
        }
        for label, embed in verbs.items():
            first, second = (embed(session) for session in sessions)
            likeness = np.corrcoef(first, second)[: len(first), len(first) :]
            right = np.arange(len(first))
            share = (
                (likeness.argmax(1) == right).mean() + (likeness.argmax(0) == right).mean()
            ) / 2
            yield {"features": label, "seed": seed, "identified": float(share)}


TABLES: dict[str, Callable[[argparse.Namespace], Rows]] = {
    "features": features,
    "strict": strict,
    "floors": floors,
    "masked": masked,
    "labels": labels,
    "stages": identified,
}


def markdown(name: str, found: pd.DataFrame) -> dict[str, str]:
    """The blocks of the page that a table fills, as Markdown; means over seeds, intervals of the first."""
    if name == "features":
        return {f"features-{cohort}": _features(part) for cohort, part in found.groupby("cohort")}
    if name == "strict":
        return {name: _features(found)}
    if "draw" in found:
        against = YARDSTICK if name == "labels" else "median, the same for everyone"
        blocks = {
            name if name == "floors" else f"{name}-{cohort}": part
            for cohort, part in found.groupby("cohort")
        }
        return {block: _curves(part, against) for block, part in blocks.items()}
    keys = [column for column in ("features", "view", "target") if column in found]
    means = (
        found.groupby(keys, sort=False).mean(numeric_only=True).drop(columns="seed").reset_index()
    )
    return {
        name: _lines(
            list(means), [[_cell(value) for value in row] for row in means.to_numpy(object)]
        )
    }


def _features(found: pd.DataFrame) -> str:
    rows = []
    for label, part in found.groupby("features", sort=False):
        cells = []
        for target in TARGETS:
            one = part[part["target"] == target].sort_values("seed")
            bounds = re.search(r"\[.*\]", str(one["minus raw FC"].iloc[0]))
            cells.append(f"{one['score'].mean():.3f}" + (f" {bounds[0]}" if bounds else ""))
        rows.append([str(label), *cells])
    return _lines(["features", "age r", "sex AUC", "diagnosis AUC"], rows)


def _curves(found: pd.DataFrame, against: str) -> str:
    """Means over draws; in brackets in how many of them the row is above another."""
    scores = found.set_index(["target", "labels", "draw", "features"])["score"].unstack(
        "features", sort=False
    )
    cells = {}
    for row in scores:
        apart = scores[row] - scores[against]
        means, wins = (
            one.groupby(["target", "labels"], sort=False) for one in (scores[row], apart > 0)
        )
        said = means.mean().map("{:.3f}".format) + (
            "" if row == against else wins.sum().map(" ({})".format)
        )
        cells[row] = said.groupby("target", sort=False).agg(", ".join)
    head = [f"{target} {'r' if metric == 'r' else 'AUC'}" for target, metric in TARGETS.items()]
    return _lines(
        ["features", *head], [[row, *(cells[row][target] for target in TARGETS)] for row in cells]
    )


def _cell(value: Any) -> str:
    return (
        str(value)
        if not isinstance(value, float)
        else f"{value:.3f}"
        if abs(value) < 10
        else f"{value:.0f}"
    )


def _lines(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; signs are set as signs."""
    text = "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])
    return re.sub(r"-(?=\d)", "−", text)


def fill(page: str, name: str, table: str) -> str:
    """The page with the block between the marks of one table replaced."""
    begin, end = f"<!-- table {name} -->\n", f"<!-- end of {name} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page must have one {begin.strip()} and one {end}")
    before, rest = page.split(begin)
    return before + begin + table + "\n" + end + rest.split(end)[1]


def main() -> None:
    """Read the command line and make one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data"
    )
    parser.add_argument("--out", type=Path, default=Path("out/recipe"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="*", default=[], help="Cohorts of `features`: abide, ucla.")
    parser.add_argument("--page", action="store_true", help="Put the table into the page.")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NerveWarning)
    found = pd.DataFrame(list(TABLES[args.table](args)))
    write_tsv(args.out / f"{args.table}.tsv", found)
    for name, table in markdown(args.table, found).items():
        sys.stdout.write(f"{name}\n{table}\n")
        if args.page:
            page = PAGES.get(name, PAGE)
            write_text(page, fill(page.read_text(), name, table))


if __name__ == "__main__":
    main()
