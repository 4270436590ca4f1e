"""Can NERVE be more than shrunk tangent space? From one half of a scan to what others share of the other half.

`python -m studies.posterior --data FOLDER` prints two tables, with `--page` into docs/attempts.md. ABIDE is split in
three: directions come from the first part, models are trained on the second, the third is held out. From a half scan
every model predicts the scores of the other half on the directions; NERVE, reading the shrunk matrix, corrects the
linear prediction and begins at it. Features are predictions from whole scans, of the second and third part.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from studies.recipe import DOCS, LABELLED, Rows, _curves, _lines, abide, few_labels, fill

import nerve
from nerve._utils.errors import NerveWarning
from nerve._utils.files import write_text, write_tsv
from nerve._utils.linalg import Shrinkage, principal_components, shrinkage_of, unit_rows
from nerve.core import MaskedAutoencoder
from nerve.core.patching import Patching
from nerve.core.views import TangentView

PAGE = DOCS / "attempts.md"
WIDTH, EPOCHS, BATCH = 128, 6, 16
Predict = Callable[[np.ndarray], np.ndarray]  # (n, p) unit vectors → (n, k) scores


def half_scans(data: Path, cohort: nerve.Cohort) -> np.ndarray:
    """(n, 2, R, R): FC of the halves of each scan."""
    series = np.load(data / "abide_cc200" / "timeseries_200.npy", mmap_mode="r")
    rows = pd.read_csv(data / "abide_cc200" / "timeseries_rows.tsv", sep="\t").set_index(
        "participant_id"
    )
    rows = rows.loc[cohort.participants["participant_id"]]
    scans = (
        np.asarray(series[a : a + n], float)
        for a, n in zip(rows["first"], rows["n_volumes"], strict=True)
    )
    halves = ([np.corrcoef(half.T) for half in np.array_split(scan, 2)] for scan in scans)
    return np.nan_to_num(np.array(list(halves), np.float32))


class Corrected:
    """What a NERVE adds to the linear prediction; nothing, before it is trained."""

    def __init__(self, found: Shrinkage, linear: np.ndarray, patching: Patching, seed: int) -> None:
        torch.manual_seed(seed)
        # the model of NERVE's preset small
        self.module = MaskedAutoencoder(
            patching, dim=64, depth=2, init="signs", standardise=True, n_components=0
        )
        self.found, self.linear, self.patching = found, torch.from_numpy(linear), patching
        self.onto = torch.from_numpy(
            patching.pack(whole(found.directions.T, patching.n_regions))
        ).T  # (S, k)
        self.onto /= self.onto.square().sum(0)

    def inputs(self, units: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Packed shrunk matrices, and what is predicted without NERVE."""
        scores = units @ self.found.directions
        shrunk = (scores * self.found.weights[1]) @ self.found.directions.T
        packed = self.patching.pack(whole(shrunk, self.patching.n_regions))
        return torch.from_numpy(packed), torch.from_numpy(scores) * self.linear

    def predict(self, packed: torch.Tensor, linear: torch.Tensor) -> torch.Tensor:
        """The linear prediction, corrected."""
        assert self.module.mean is not None
        return linear + (self.module.reconstruct(packed) - self.module.mean) @ self.onto

    def train(
        self, units: np.ndarray, wanted: np.ndarray, held: Callable[[Predict], float], seed: int
    ) -> list[float]:
        """Adam with a cosine; the held-out error before each epoch and after the last."""
        packed, linear = self.inputs(units)
        target, errors = torch.from_numpy(wanted), [held(self)]
        self.module.fit_standardisation([packed])
        generator, per_epoch = torch.Generator().manual_seed(seed), len(units) // BATCH
        gain = self.module.decoder_norm.weight  # begins at zero, and all else waits for it
        rest = [one for one in self.module.parameters() if one is not gain]
        groups = [{"params": rest}, {"params": [gain], "lr": 2e-2}]
        optimiser = torch.optim.AdamW(groups, 1e-3, betas=(0.9, 0.98), weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS * per_epoch)
        for _ in range(EPOCHS):
            order = torch.randperm(len(units), generator=generator)
            for rows in order[: per_epoch * BATCH].split(BATCH):
                loss = (
                    (self.predict(packed[rows], linear[rows]) - target[rows]).square().sum(1).mean()
                )
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
                optimiser.step()
                schedule.step()
            errors.append(held(self))
        return errors

    @torch.no_grad()
    def __call__(self, units: np.ndarray) -> np.ndarray:
        """Predictions, some participants at a time."""
        packed, linear = self.inputs(units)
        parts = [
            self.predict(a, b) for a, b in zip(packed.split(64), linear.split(64), strict=True)
        ]
        return torch.cat(parts).numpy()


def whole(vectors: np.ndarray, n_regions: int) -> np.ndarray:
    """(n, R (R + 1) / 2) → symmetric (n, R, R)."""
    rows, columns = np.triu_indices(n_regions)
    matrices = np.empty((len(vectors), n_regions, n_regions), np.float32)
    matrices[:, rows, columns] = matrices[:, columns, rows] = vectors
    return matrices


def linear_correction(scores: np.ndarray, left: np.ndarray) -> np.ndarray:
    """The (k, k) matrix of all directions on what each by itself leaves over; the penalty is chosen on fifths."""
    folds = (
        np.arange(len(scores)) % (len(scores) // 2) % 5
    )  # both halves of a participant in the same

    def solved(rows: np.ndarray, penalty: float) -> np.ndarray:
        gram = scores[rows].T @ scores[rows]
        return np.linalg.solve(
            gram + penalty * np.trace(gram) / len(gram) * np.eye(len(gram)),
            scores[rows].T @ left[rows],
        )

    def error(penalty: float) -> float:
        parts = ((folds == f, solved(folds != f, penalty)) for f in range(5))
        return sum(
            float(np.square(left[some] - scores[some] @ found).sum()) for some, found in parts
        )

    return solved(np.ones(len(scores), bool), min(10.0 ** np.arange(-1, 5), key=error)).astype(
        np.float32
    )


def probabilistic_pca(units: np.ndarray, directions: np.ndarray) -> Predict:
    """The posterior mean of what components explain of a participant, x = μ + Wz + ε, as scores on the directions.

    Fitted by maximum likelihood (Tipping and Bishop 1999) on single scans: no scan says what the noise of another is.
    """
    mean, components, variances = principal_components(units, WIDTH)
    noise = variances[WIDTH:].sum() / (units.shape[1] - WIDTH)
    onto = (components * (1 - noise / variances[:WIDTH])).T.astype(
        np.float32
    ) @ directions  # (k, directions)
    return lambda x: mean @ directions + (x - mean) @ components @ onto


def attempts(data: Path, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Held-out errors of every model, and few labels with its features."""
    cohort = abide(data)
    order = np.random.default_rng(seed).permutation(len(cohort))
    first, second, third = np.split(order, [int(0.4 * len(order)), int(0.8 * len(order))])
    view, above = (
        TangentView().fit(cohort.connectivity[np.sort(first)]),
        np.triu_indices(cohort.n_regions),
    )
    tangent = view.apply(cohort.connectivity)[:, *above]
    mean = tangent[first].mean(axis=0)
    units = unit_rows(tangent - mean)
    halves = np.stack(
        [
            unit_rows(view.apply(half)[:, *above] - mean)
            for half in half_scans(data, cohort).swapaxes(0, 1)
        ]
    )
    found = shrinkage_of(units[first], WIDTH)

    def both(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Each half, and the scores of the other."""
        return np.concatenate(halves[:, rows]), np.concatenate(
            halves[::-1, rows]
        ) @ found.directions

    inputs, wanted = both(second)
    tested, truth = both(third)
    scores = inputs @ found.directions
    linear = ((scores * wanted).sum(0) / (scores**2).sum(0)).astype(np.float32)
    full = np.diag(linear) + linear_correction(scores, wanted - scores * linear)

    def held(predict: Predict) -> float:
        return float(np.square(predict(tested) - truth).sum() / np.square(truth).sum())

    models: dict[str, Predict] = {
        "posterior mean, each direction by itself": lambda x: (x @ found.directions) * linear,
        "the same, corrected by ridge of all directions": lambda x: (x @ found.directions) @ full,
        "the weights of `shrunk`": lambda x: (x @ found.directions) * found.weights[1],
        "probabilistic PCA, of first halves": probabilistic_pca(
            halves[0, second], found.directions
        ),
    }
    rows = [
        {"model": name, "held-out error": f"{held(predict):.4f}"}
        for name, predict in models.items()
    ]
    networks = Patching.from_parcellation(cohort.parcellation)
    for name, patching in {
        "NERVE": networks,
        "NERVE, permuted networks": networks.permuted(seed),
    }.items():
        model = models[f"{name}, {EPOCHS} epochs"] = Corrected(found, linear, patching, seed)
        errors = model.train(inputs, wanted, held, seed)
        rows.append(
            {
                "model": f"{name}, 0 … {EPOCHS} epochs",
                "held-out error": " ".join(f"{one:.4f}" for one in errors),
            }
        )
    others = np.sort(np.concatenate([second, third]))
    sets = {name: predict(units[others]) for name, predict in models.items()}
    few: Rows = few_labels(
        cohort.subset(others), {"tangent space": units[others], **sets}, LABELLED["abide"]
    )
    return pd.DataFrame(rows), pd.DataFrame(list(few))


def main() -> None:
    """Read the command line and make the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data"
    )
    parser.add_argument("--out", type=Path, default=Path("out/posterior"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", action="store_true", help="Put the tables into the page.")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NerveWarning)
    errors, few = attempts(args.data, args.seed)
    write_tsv(args.out / "errors.tsv", errors)
    write_tsv(args.out / "few_labels.tsv", few)
    tables = {
        "posterior": _lines(list(errors), errors.to_numpy(str).tolist()),
        "posterior-labels": _curves(few, "the weights of `shrunk`"),
    }
    for name, table in tables.items():
        sys.stdout.write(f"{table}\n")
        if args.page:
            write_text(PAGE, fill(PAGE.read_text(), name, table))


if __name__ == "__main__":
    main()
