"""Regenerate the tables of docs/recipe.md from real cohorts.

`python -m tools.recipe abide|features|stages|transfer|labels|simulated` writes OUT/<command>.tsv and prints its table,
with `--page` into docs/recipe.md too; `curves` draws. Rows that are in the TSV already are not computed again; trained
models are kept in OUT/models. Times are CPU seconds of one thread.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tools.recipe_tables import TABLES, TARGETS, fill

import nerve
from nerve.checks import NerveWarning
from nerve.evaluation import KernelRidge, compare, evaluate, score_table
from nerve.files import write_text, write_tsv
from nerve.methods.ppca import PPCA
from nerve.methods.references import PrincipalComponents
from nerve.methods.tangent import TangentSpace
from nerve.patching import Patching
from nerve.simulate import simulate_cohort

PAGE = Path(__file__).resolve().parents[1] / "docs" / "recipe.md"
PAPER_SECONDS = 200.0  # as long as the default takes


class Table:
    """Rows of results, written after each one; what is there already is not computed again."""

    def __init__(self, path: Path, keys: list[str]) -> None:
        self.path, self.keys = path, keys
        self.rows: list[dict[str, Any]] = []
        if path.is_file():
            self.rows = pd.read_csv(path, sep="\t", dtype=dict.fromkeys(keys, str)).to_dict("records")

    def add(self, key: dict[str, Any], compute: Callable[[], dict[str, Any] | None]) -> None:
        """One row, or the rows of a DataFrame under ``rows``."""
        key = {name: str(value) for name, value in key.items()}
        if any(all(row.get(name) == value for name, value in key.items()) for row in self.rows):
            return
        found = compute()
        if found is None:
            return
        self.rows += [key | row for row in found.pop("rows", [found])]
        write_tsv(self.path, pd.DataFrame(self.rows))


# ---- people


def whole(upper: np.ndarray, n_regions: int) -> np.ndarray:
    """(n, R (R - 1) / 2) → (n, R, R) with a unit diagonal."""
    fc = np.ones((len(upper), n_regions, n_regions), np.float32)
    rows, columns = np.triu_indices(n_regions, 1)
    fc[:, rows, columns] = fc[:, columns, rows] = upper
    return fc


def abide(data: Path) -> nerve.Cohort:
    """ABIDE CC200 in Yeo-17 and NonCortical groups, people without constant regions."""
    folder = data / "abide_cc200"
    table = pd.read_csv(folder / "participants.tsv", sep="\t", na_values="n/a")
    good = (table["n_constant_rois"] == 0).to_numpy()
    names = {
        "FILE_ID": "participant_id",
        "AGE_AT_SCAN": "age",
        "SEX": "sex",
        "DX_GROUP": "diagnosis",
        "SITE_ID": "site",
    }
    regions = pd.read_csv(folder / "regions.tsv", sep="\t", dtype=str)
    networks = tuple(regions["net17"].fillna("NonCortical"))
    parcellation = nerve.Parcellation(tuple(regions["label"]), networks, name="cc200")
    upper = np.load(folder / "fc_upper_200.npy", mmap_mode="r")[good]
    return nerve.Cohort(
        whole(upper, 200), table[good].reset_index(drop=True).rename(columns=names), parcellation, name="abide"
    )


def ucla(data: Path) -> nerve.Cohort:
    """UCLA, 400 cortical and 19 subcortical regions; diagnosis is any against none."""
    table = pd.read_csv(data / "ucla_cnp" / "participants.tsv", sep="\t", na_values="n/a")
    table["diagnosis"] = np.where(table["diagnosis"] == "CONTROL", "control", "patient")
    fc = whole(np.load(data / "ucla_cnp" / "fc_upper_419.npy"), 419)
    return nerve.Cohort(fc, table, "schaefer400-17+aseg19", name="ucla")


def stages(data: Path) -> tuple[nerve.Cohort, nerve.Cohort]:
    """The two sessions of the people who came twice, in the region order of UCLA."""
    sessions = [np.load(data / "stages" / f"timeseries_ses-{s}.npz", allow_pickle=False) for s in (1, 2)]
    ids = [key for key in sessions[0].files if key in sessions[1].files]

    def correlations(series: np.ndarray) -> np.ndarray:
        return np.corrcoef(series if series.shape[0] == 419 else series.T)

    def cohort(session: Any, name: str) -> nerve.Cohort:
        fc = np.nan_to_num(np.stack([correlations(session[key]) for key in ids])).astype(np.float32)
        table = pd.DataFrame({"participant_id": ids})
        order = nerve.load_parcellation("schaefer400-17+aseg19")
        return nerve.Cohort(fc, table, "schaefer400-7+aseg19", name=name).align(order)

    return cohort(sessions[0], "ses-1"), cohort(sessions[1], "ses-2")


def held_out(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and test people: a fifth is held out."""
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[n // 5 :]), np.sort(order[: n // 5])


# ---- models


def trained(
    args: argparse.Namespace, name: str, cohort: nerve.Cohort, seed: int, **changes: Any
) -> tuple[nerve.NERVE, float]:
    """A model from OUT/models, trained if it is not there, and the CPU seconds of its training."""
    folder = args.out / "models" / f"{name}_{seed}"
    clock = folder / "cpu_seconds.txt"
    if clock.is_file():
        return nerve.NERVE.load(folder, device="cpu"), float(clock.read_text())
    preset = changes.pop("preset", "default")
    began = time.process_time()
    encoder = nerve.NERVE.from_preset(preset, seed=seed, device="cpu", **changes).fit(cohort)
    seconds = time.process_time() - began
    encoder.save(folder)
    clock.write_text(f"{seconds:.1f}")
    return encoder, seconds


def untrained(cohort: nerve.Cohort, seed: int, **changes: Any) -> nerve.NERVE:
    """The default with what it takes from the training people, and no step."""
    encoder = nerve.NERVE.from_preset("default", seed=seed, device="cpu", **changes)
    encoder.parcellation_, encoder.n_features_in_ = cohort.parcellation, cohort.n_regions
    encoder.module_ = encoder.seeded_build(cohort.parcellation)
    training, _ = encoder.split(cohort, cohort, encoder.training_settings())
    encoder.start(encoder.module_, encoder.source(cohort), training)
    return encoder


def masked_error(method: Any, patching: Patching, training: nerve.Cohort, test: nerve.Cohort, seed: int) -> float:
    """Error of masked patches relative to that of the training people's mean.

    Σ over people and masked patches of ‖x̂_p - x_p‖² / size_p, for the model and for the mean.
    """
    noise = np.random.default_rng(1234 + seed).random((len(test), patching.n_patches))
    masked = np.sort(np.argsort(noise, axis=1)[:, patching.n_patches // 2 :], axis=1)
    truth = patching.pack(test.connectivity)
    mean = patching.pack(np.mean(training.connectivity, axis=0, dtype=float))

    def error(guess: np.ndarray) -> float:
        by_patch = np.add.reduceat(np.square(guess - truth), patching.offsets[:-1], axis=1) / patching.sizes
        return float(np.take_along_axis(by_patch, masked, axis=1).sum())

    return error(patching.pack(method.reconstruct(test, masked))) / error(mean)


# ---- the tables


def run_abide(args: argparse.Namespace) -> None:
    """Masked error of held-out people: the recipe, the linear reference, the paper in the same time, controls."""
    cohort, table = abide(args.data), Table(args.out / "abide.tsv", ["model", "seed"])
    for seed in args.seeds:
        for name, compute in abide_rows(args, cohort, seed).items():
            if not args.only or name in args.only:
                table.add({"model": name, "seed": seed}, compute)


def abide_rows(args: argparse.Namespace, cohort: nerve.Cohort, seed: int) -> dict[str, Callable[[], dict[str, Any]]]:
    """What computes each row."""
    training, test = (cohort.subset(rows) for rows in held_out(len(cohort), seed))

    def row(method: Any, seconds: float) -> dict[str, Any]:
        error = masked_error(method, method.patching_, training, test, seed)
        return {"masked_error": error, "cpu_seconds": round(seconds)}

    def ppca() -> dict[str, Any]:
        began = time.process_time()
        model = PPCA().fit(training)
        return row(model, time.process_time() - began)

    def paper(name: str, probe: int, **changes: Any) -> dict[str, Any]:
        began = time.process_time()
        nerve.NERVE.from_preset("paper", seed=seed, device="cpu", max_steps=probe, **changes).fit(training)
        steps = max(1, int(PAPER_SECONDS * probe / (time.process_time() - began)))
        epoch = -(-len(training) // changes.get("batch_size", len(training)))
        changes |= {"preset": "paper", "max_steps": steps, "warmup_epochs": steps / epoch / 10}
        return row(*trained(args, name, training, seed, **changes))

    return {
        "default": lambda: row(*trained(args, "default", training, seed)),
        "default, 20 epochs": lambda: row(*trained(args, "longer", training, seed, epochs=20)),
        "permuted networks": lambda: row(*trained(args, "permuted", training, seed, patching=f"permuted{seed}")),
        "default, no training": lambda: row(untrained(training, seed), 0.0),
        "ppca, 200 components": ppca,
        "small": lambda: row(*trained(args, "small", training, seed, preset="small")),
        "permuted networks, no training": lambda: row(untrained(training, seed, patching=f"permuted{seed}"), 0.0),
        "paper, same time": lambda: paper("paper", probe=1),
        "paper, batch of 16, same time": lambda: paper("paper16", probe=20, batch_size=16),
    }


CURVES = {
    "default": "default",
    "default, 20 epochs": "longer",
    "paper's recipe": "paper",
    "paper's, batch of 16": "paper16",
}


def run_curves(args: argparse.Namespace) -> None:
    """Masked error of validation people against CPU time, from the histories of the models of `abide`."""
    import matplotlib.pyplot as plt

    cohort = abide(args.data)
    figure, (axes, near) = plt.subplots(1, 2, figsize=(9, 3.6), width_ratios=(3, 2), layout="constrained")
    for color, (label, name) in enumerate(CURVES.items()):
        for seed in args.seeds:
            folder = args.out / "models" / f"{name}_{seed}"
            if not (folder / "cpu_seconds.txt").is_file():
                continue
            encoder = nerve.NERVE.load(folder, device="cpu")
            training = cohort.subset(held_out(len(cohort), seed)[0])
            times, errors = learning_curve(encoder, training, float((folder / "cpu_seconds.txt").read_text()))
            axes.plot(times, errors, color=f"C{color}", label=label if seed == args.seeds[0] else None, alpha=0.8)
            if name in ("default", "longer"):
                near.plot(times, errors, color=f"C{color}", alpha=0.8)
    for error, label, side in ((1.0, "group mean", "bottom"), (0.733, "linear, 200 components", "top")):
        axes.axhline(error, color="0.5", linewidth=0.8, linestyle="--")
        axes.annotate(label, (0.99, error), xycoords=("axes fraction", "data"), ha="right", va=side, fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="CPU seconds", ylabel="masked error / group mean")
    axes.legend(frameon=False)
    near.set(xlabel="CPU seconds", title="The default, closer", ylim=(0.1, None))
    figure.savefig(args.out / "recipe_curves.svg")
    say(f"{args.out / 'recipe_curves.svg'}")


def learning_curve(encoder: nerve.NERVE, training: nerve.Cohort, seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """CPU time of each validation, and its loss relative to the group mean's; wall time is scaled to CPU time."""
    history = encoder.history_.dropna(subset=["validation_loss"])
    fitted, validation = encoder.split(training, training, encoder.training_settings())
    packed = encoder.patching_.pack(training.connectivity)
    deviation = np.square(packed[validation] - packed[fitted].mean(0))
    patching = encoder.patching_
    mean_loss = (np.add.reduceat(deviation, patching.offsets[:-1], axis=1) / patching.sizes).mean()
    times = history["seconds"].to_numpy(float)
    return times / times[-1] * seconds, history["validation_loss"].to_numpy(float) / mean_loss


def feature_rows(
    cohort: nerve.Cohort, training: nerve.Cohort, encoder: nerve.NERVE, others: dict[str, nerve.NERVE]
) -> dict[str, Any]:
    """r and AUC of every feature set, and the paired bootstrap of NERVE's against raw FC and its components.

    `raw` and `pca` (256 components) know the training folds only. One control is fitted inside each fold as they are:
    the recipe without training, so that what it has to do with people of the test fold is nothing.
    """
    sets: dict[str, Any] = {
        "raw": "raw",
        "pca": "pca",
        "NERVE pca": encoder.transform(cohort, "pca"),
        "NERVE factors": encoder.transform(cohort, "factors"),
        "NERVE tokens": flat(encoder.transform(cohort, "tokens")),
        "raw minus mean": cohort.inputs("upper") - training.inputs("upper").mean(0),
        "tangent": TangentSpace().fit(training).transform(cohort),
    }
    for name, other in others.items():
        for pooling in ("pca", "tokens"):
            sets[f"{name}, {pooling}"] = flat(other.transform(cohort, pooling))
    predictions = evaluate(sets, cohort, TARGETS, motion=None)
    if others:
        raw = predictions[predictions["method"] == "raw"]
        predictions = pd.concat([predictions, inside_folds(cohort, raw, "NERVE no training, in folds, pca")])
    scores = score_table(predictions, n_bootstrap=0).set_index(["target", "method"])
    rows = []
    for method in scores.index.unique("method"):
        references = [other for other in ("raw", "pca") if other != method]
        found = {other: compare(predictions, method, other).set_index("target") for other in references}
        for target in TARGETS:
            one = scores.loc[target, method]
            line = {"target": target, "features": method, "r": float(one["r"]), "auc": float(one["auc"])}
            rows.append(line | {f"minus_{other}": difference_text(found[other].loc[target]) for other in references})
    return {"rows": rows}


def inside_folds(cohort: nerve.Cohort, raw: pd.DataFrame, name: str) -> pd.DataFrame:
    """Predictions by the recipe without training, its mean, factors and components from each fold's training people.

    `raw` are the predictions of another row: folds and observed values are taken from there.
    """
    ids = cohort.participants["participant_id"].to_numpy(object)
    rows = raw.set_index("participant")
    found = []
    for _, fold in rows.groupby("fold"):
        test = np.isin(ids, fold.index.to_numpy(object))
        features = untrained(cohort.subset(np.flatnonzero(~test)), 0).transform(cohort, "pca")
        for target, people in fold.groupby("target"):
            y = rows.loc[rows["target"] == target, "observed"].reindex(ids).to_numpy(float)
            model = KernelRidge().fit(features[~test], y[~test])
            predicted = pd.Series(np.ravel(model.predict(features[test])), index=ids[test])
            found.append(people.assign(predicted=predicted.reindex(people.index), method=name))
    return pd.concat(found).reset_index()[raw.columns]


def flat(features: np.ndarray) -> np.ndarray:
    """(n, …) → (n, numbers)."""
    return features.reshape(len(features), -1)


def difference_text(found: pd.Series) -> str:
    """A difference with its interval, as one cell."""
    return f"{found['difference']:.3f} [{found['difference_low']:.3f}, {found['difference_high']:.3f}]"


def run_features(args: argparse.Namespace) -> None:
    """Age, sex and diagnosis out of fold. Encoders saw everyone, unlabelled, but for the control inside folds."""
    table = Table(args.out / "features.tsv", ["cohort", "seed"])
    for name, read in (("abide", abide), ("ucla", ucla)):
        if args.only and name not in args.only:
            continue
        cohort = read(args.data)
        for seed in args.seeds:
            encoder, _ = trained(args, f"default_{name}", cohort, seed)
            controls = {}
            if seed == 0:
                controls["NERVE no training"] = untrained(cohort, seed)
                permuted = {"patching": f"permuted{seed}"}
                controls["NERVE no training, permuted networks"] = untrained(cohort, seed, **permuted)
                controls["NERVE permuted networks"] = trained(args, f"permuted_{name}", cohort, seed, **permuted)[0]
            table.add({"cohort": name, "seed": seed}, partial(feature_rows, cohort, cohort, encoder, controls))


def identification(
    sessions: tuple[nerve.Cohort, nerve.Cohort], embed: Callable[[nerve.Cohort], np.ndarray]
) -> dict[str, float]:
    """Share of people whose other session is the most correlated one, both ways."""
    first, second = (flat(np.asarray(embed(cohort))) for cohort in sessions)
    similarity = np.corrcoef(first, second)[: len(first), len(first) :]
    right = np.arange(len(first))
    return {"identified": float(((similarity.argmax(1) == right).mean() + (similarity.argmax(0) == right).mean()) / 2)}


def run_stages(args: argparse.Namespace) -> None:
    """Do two sessions three months apart belong together? Components and encoders come from UCLA alone."""
    table, other = Table(args.out / "stages.tsv", ["features", "seed"]), ucla(args.data)
    sessions = stages(args.data)
    mean = other.inputs("upper").mean(0)
    components = PrincipalComponents().fit(other)
    references: dict[str, Callable[[nerve.Cohort], np.ndarray]] = {
        "raw": lambda cohort: cohort.inputs("upper"),
        "raw minus mean": lambda cohort: cohort.inputs("upper") - mean,
        "tangent": TangentSpace().fit(other).transform,
        "pca": components.transform,
    }
    for name, embed in references.items():
        table.add({"features": name, "seed": 0}, partial(identification, sessions, embed))
    for seed in args.seeds:
        encoders = {"NERVE": trained(args, "default_ucla", other, seed)[0], "NERVE no training": untrained(other, seed)}
        for name, encoder in encoders.items():
            for pooling in ("pca", "factors", "tokens"):
                embed = partial(encoder.transform, pooling=pooling)
                table.add({"features": f"{name}, {pooling}", "seed": seed}, partial(identification, sessions, embed))


def run_transfer(args: argparse.Namespace) -> None:
    """Encoder of half of the ABIDE sites; prediction within the others, whom it has never seen."""
    cohort, table = abide(args.data), Table(args.out / "transfer.tsv", ["seed"])
    sites = np.array(sorted(cohort.participants["site"].unique()))
    for seed in args.seeds:
        chosen = np.random.default_rng(seed).permutation(sites)[: len(sites) // 2]
        there = cohort.participants["site"].isin(chosen).to_numpy()
        training, test = cohort.subset(there), cohort.subset(~there)
        encoder, _ = trained(args, "default_sites", training, seed)
        controls = {"NERVE no training": untrained(training, seed)}
        table.add({"seed": seed}, partial(feature_rows, test, training, encoder, controls))


def run_simulated(args: argparse.Namespace) -> None:
    """The same where the truth is known: 400 people, scores of which FC explains much, and one of which nothing."""
    table = Table(args.out / "simulated.tsv", ["seed"])
    for seed in args.seeds:
        cohort = simulate_cohort(400, "schaefer100-17", 200, seed=seed, keep_timeseries=False)
        table.add({"seed": seed}, partial(simulated_rows, args, cohort, seed))


def simulated_rows(args: argparse.Namespace, cohort: nerve.Cohort, seed: int) -> dict[str, Any]:
    """Masked error of held-out people, and r of each score."""
    training, test = (cohort.subset(rows) for rows in held_out(len(cohort), seed))
    encoder, start = trained(args, "simulated", training, seed)[0], untrained(training, seed)
    models = {"NERVE": encoder, "NERVE no training": start, "ppca": PPCA().fit(training)}
    rows = [
        {"what": "masked error", "model": name, "value": masked_error(model, model.patching_, training, test, seed)}
        for name, model in models.items()
    ]
    everyone = trained(args, "simulated_all", cohort, seed)[0]
    sets: dict[str, Any] = {"raw": "raw", "pca": "pca"}
    sets |= {f"NERVE {pooling}": flat(everyone.transform(cohort, pooling)) for pooling in ("pca", "factors", "tokens")}
    scores = score_table(evaluate(sets, cohort, ["p_factor", "internalizing", "null"], motion=None), n_bootstrap=0)
    rows += [{"what": f"r of {s.target}", "model": s.method, "value": float(s.r)} for s in scores.itertuples()]
    return {"rows": rows}


def run_labels(args: argparse.Namespace) -> None:
    """Prediction from few labelled people: kernel ridge on 25 … 200 of them, tested on all others, 20 draws."""
    cohort, table = abide(args.data), Table(args.out / "labels.tsv", ["seed"])
    for seed in args.seeds:
        training = cohort.subset(held_out(len(cohort), seed)[0])
        encoder, _ = trained(args, "default", training, seed)
        table.add({"seed": seed}, partial(label_rows, cohort, training, encoder))


def label_rows(cohort: nerve.Cohort, training: nerve.Cohort, encoder: nerve.NERVE) -> dict[str, Any]:
    """`few_labels` of raw FC and of the features of one encoder."""
    upper = cohort.inputs("upper")
    sets = {"raw": upper, "raw minus mean": upper - training.inputs("upper").mean(0)}
    sets |= {f"NERVE {pooling}": flat(encoder.transform(cohort, pooling)) for pooling in ("pca", "factors", "tokens")}
    return {"rows": [{"n": n} | row for n in (25, 50, 100, 200) for row in few_labels(sets, cohort, n)]}


def few_labels(sets: dict[str, np.ndarray], cohort: nerve.Cohort, n: int, draws: int = 20) -> Any:
    """Mean correlation of predicted and observed over draws, for each target and feature set."""
    kernels = {}
    for name, features in sets.items():
        rows = features - features.mean(1, keepdims=True)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        kernels[name] = (rows @ rows.T).astype(float)
    for target in TARGETS:
        y = pd.to_numeric(cohort.participants[target]).to_numpy(float)
        for name, kernel in kernels.items():
            found = []
            for draw in range(draws):
                order = np.random.default_rng([n, draw]).permutation(len(y))
                train, test = order[:n], order[n:]
                model = KernelRidge(kernel="precomputed").fit(kernel[np.ix_(train, train)], y[train])
                found.append(np.corrcoef(model.predict(kernel[np.ix_(test, train)]).ravel(), y[test])[0, 1])
            yield {"target": target, "features": name, "r": float(np.mean(found)), "sd": float(np.std(found))}


def say(text: str) -> None:
    """To standard output."""
    sys.stdout.write(text + "\n")


COMMANDS = {
    "abide": run_abide,
    "curves": run_curves,
    "features": run_features,
    "stages": run_stages,
    "transfer": run_transfer,
    "labels": run_labels,
    "simulated": run_simulated,
}


def main() -> None:
    """Read the command line and run one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=list(COMMANDS))
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--out", type=Path, default=Path("out/recipe"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="*", default=[], help="Some rows (abide) or cohorts (features).")
    parser.add_argument("--page", action="store_true", help="Put the table into docs/recipe.md.")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NerveWarning)
    COMMANDS[args.table](args)
    for name, render in TABLES.items():
        if name.split("-")[0] == args.table:
            lines = render(pd.read_csv(args.out / f"{args.table}.tsv", sep="\t", na_values=["n/a"]))
            say(lines)
            if args.page and lines:
                write_text(PAGE, fill(PAGE.read_text(), name, lines))


if __name__ == "__main__":
    main()
