"""Can NERVE be more than shrunk tangent space? It predicts one half of a scan from the other half.

`python -m studies.posterior --data FOLDER` writes OUT/errors.tsv and OUT/few_labels.tsv and prints
two tables; `--page` puts them into docs/attempts.md. The participants of ABIDE are split in three:
directions are learned from the first part, models from the second, and the third is held out. From
half a scan every model predicts the scores of the other half on the directions. NERVE reads the
shrunk matrix and corrects a linear prediction, with which it begins. Predictions from whole scans
of the second and third part are then used as features.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from studies._cohorts import DATA, abide_series, read_abide
from studies._tables import (
    DOCS,
    LABELLED,
    few_labels_table,
    fill,
    markdown_table,
    score_few_labels,
)

import nerve
from nerve._utils.errors import NerveWarning
from nerve._utils.files import write_text, write_tsv
from nerve._utils.linalg import Shrinkage, principal_components, shrinkage_of, unit_rows
from nerve.core import MaskedAutoencoder
from nerve.core.patching import Patching
from nerve.core.views import TangentView

PAGE = DOCS / "attempts.md"
WIDTH = 128  # directions
EPOCHS = 6
BATCH = 16
PENALTIES = 10.0 ** np.arange(-1, 5)
WEIGHTS_OF_SHRUNK = "the weights of `shrunk`"  # the reference of the table of few labels
Predict = Callable[[np.ndarray], np.ndarray]  # (n, p) unit vectors → (n, k) scores


def read_half_scans(data: Path, cohort: nerve.Cohort) -> np.ndarray:
    """Return FC of both halves of each scan of ABIDE, (n, 2, R, R)."""
    fc = []
    for scan in abide_series(data, cohort.participants["participant_id"]):
        halves = np.array_split(np.asarray(scan, float), 2)
        fc.append([np.corrcoef(half.T) for half in halves])
    return np.nan_to_num(np.array(fc, np.float32))


def symmetric_matrices(upper: np.ndarray, n_regions: int) -> np.ndarray:
    """Return symmetric (n, R, R) matrices from their (n, R (R + 1) / 2) entries."""
    rows, columns = np.triu_indices(n_regions)
    matrices = np.empty((len(upper), n_regions, n_regions), np.float32)
    matrices[:, rows, columns] = upper
    matrices[:, columns, rows] = upper
    return matrices


class NERVECorrection:
    """A linear prediction of scores, and what a NERVE adds to it: nothing before training.

    Parameters
    ----------
    shrinkage : Shrinkage
        The directions, and the weights with which the input is shrunk.
    slopes : (k,) array
        The linear prediction multiplies the score on each direction by its slope.
    patching : Patching
    seed : int
        Of the initial weights.
    """

    def __init__(
        self, shrinkage: Shrinkage, slopes: np.ndarray, patching: Patching, seed: int
    ) -> None:
        self.shrinkage = shrinkage
        self.slopes = torch.from_numpy(slopes)
        self.patching = patching
        torch.manual_seed(seed)
        # the model of NERVE's preset small
        self.module = MaskedAutoencoder(
            patching, dim=64, depth=2, init="signs", standardise=True, n_components=0
        )
        matrices = symmetric_matrices(shrinkage.directions.T, patching.n_regions)  # (k, R, R)
        directions = torch.from_numpy(patching.pack(matrices)).T  # (S, k)
        self.packed_directions = directions / directions.square().sum(0)

    def predict(self, units: np.ndarray) -> np.ndarray:
        """Predict scores, (n, p) unit vectors → (n, k), 64 participants at a time."""
        packed, linear = self._inputs(units)
        with torch.no_grad():
            batches = zip(packed.split(64), linear.split(64), strict=True)
            predicted = [self._correct(*batch) for batch in batches]
        return torch.cat(predicted).numpy()

    def train(
        self,
        units: np.ndarray,
        scores: np.ndarray,
        held_out_error: Callable[[Predict], float],
        seed: int,
    ) -> list[float]:
        """Train by AdamW with a cosine schedule to predict the scores of the other halves.

        Parameters
        ----------
        units : (n, p) array
            Unit vectors of half scans.
        scores : (n, k) array
            Of the other halves.
        held_out_error : callable
            Prediction → its error on participants who are held out.
        seed : int
            Of the order of participants.

        Returns
        -------
        list of float
            The held-out error before each epoch and after the last.
        """
        packed, linear = self._inputs(units)
        targets = torch.from_numpy(scores)
        errors = [held_out_error(self.predict)]
        self.module.fit_standardisation([packed])
        generator = torch.Generator().manual_seed(seed)
        steps_per_epoch = len(units) // BATCH
        # the output begins at zero and all other weights wait for this one, so it learns faster
        gain = self.module.decoder_norm.weight
        others = [parameter for parameter in self.module.parameters() if parameter is not gain]
        groups = [{"params": others}, {"params": [gain], "lr": 2e-2}]
        optimiser = torch.optim.AdamW(groups, 1e-3, betas=(0.9, 0.98), weight_decay=0.0)
        n_steps = EPOCHS * steps_per_epoch
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, n_steps)
        for _ in range(EPOCHS):
            order = torch.randperm(len(units), generator=generator)
            for rows in order[: steps_per_epoch * BATCH].split(BATCH):
                predicted = self._correct(packed[rows], linear[rows])
                loss = (predicted - targets[rows]).square().sum(1).mean()
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
                optimiser.step()
                schedule.step()
            errors.append(held_out_error(self.predict))
        return errors

    def _inputs(self, units: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Return packed shrunk matrices, (n, S), and the linear prediction, (n, k)."""
        scores = units @ self.shrinkage.directions
        weights_of_new = self.shrinkage.weights[1]
        shrunk = (scores * weights_of_new) @ self.shrinkage.directions.T
        packed = self.patching.pack(symmetric_matrices(shrunk, self.patching.n_regions))
        return torch.from_numpy(packed), torch.from_numpy(scores) * self.slopes

    def _correct(self, packed: torch.Tensor, linear: torch.Tensor) -> torch.Tensor:
        """Add what NERVE reconstructs, on each direction, to the linear prediction."""
        deviation = self.module.reconstruct(packed) - self.module.mean
        return linear + deviation @ self.packed_directions


def ridge_of_residuals(scores: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """Return the (k, k) ridge weights of all scores for what each score by itself leaves over.

    The penalty is chosen on five folds; both halves of a participant are in the same fold.
    """
    n_participants = len(scores) // 2
    folds = np.arange(len(scores)) % n_participants % 5

    def solve(rows: np.ndarray, penalty: float) -> np.ndarray:
        gram = scores[rows].T @ scores[rows]
        k = len(gram)
        penalised = gram + penalty * np.trace(gram) / k * np.eye(k)
        return np.linalg.solve(penalised, scores[rows].T @ residuals[rows])

    def error(penalty: float) -> float:
        total = 0.0
        for fold in range(5):
            weights = solve(folds != fold, penalty)
            in_fold = folds == fold
            remainder = residuals[in_fold] - scores[in_fold] @ weights
            total += float(np.square(remainder).sum())
        return total

    best_penalty = min(PENALTIES, key=error)
    everyone = np.ones(len(scores), bool)
    return solve(everyone, best_penalty).astype(np.float32)


def probabilistic_pca(units: np.ndarray, directions: np.ndarray) -> Predict:
    """Return the posterior mean of x = μ + Wz + ε without ε, as scores on the directions.

    W and the variance of the noise ε are those of maximum likelihood (Tipping and Bishop 1999),
    from one half of each scan: no second half tells what is noise.
    """
    mean, components, variances = principal_components(units, WIDTH)
    noise = variances[WIDTH:].sum() / (units.shape[1] - WIDTH)
    shares_of_signal = 1 - noise / variances[:WIDTH]
    # (components, directions)
    to_scores = (components * shares_of_signal).T.astype(np.float32) @ directions

    def predict(vectors: np.ndarray) -> np.ndarray:
        return mean @ directions + (vectors - mean) @ components @ to_scores

    return predict


def compare_models(data: Path, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the held-out error of every model, and scores with few labels of its features."""
    cohort = read_abide(data)
    n = len(cohort)
    order = np.random.default_rng(seed).permutation(n)
    first, second, third = np.split(order, [int(0.4 * n), int(0.8 * n)])

    view = TangentView().fit(cohort.connectivity[np.sort(first)])
    upper = np.triu_indices(cohort.n_regions)
    vectors = view.apply(cohort.connectivity)[:, *upper]
    mean = vectors[first].mean(axis=0)
    units = unit_rows(vectors - mean)  # (n, p), of whole scans
    units_of_halves = []
    for half in read_half_scans(data, cohort).swapaxes(0, 1):
        units_of_halves.append(unit_rows(view.apply(half)[:, *upper] - mean))
    halves = np.stack(units_of_halves)  # (2, n, p)

    shrinkage = shrinkage_of(units[first], WIDTH)
    directions = shrinkage.directions

    def halves_and_scores(participants: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return every half scan, first halves first, and the scores of its other half."""
        inputs = np.concatenate(halves[:, participants])
        other_halves = np.concatenate(halves[::-1, participants])
        return inputs, other_halves @ directions

    training, training_scores = halves_and_scores(second)
    held_out, held_out_scores = halves_and_scores(third)

    def held_out_error(predict: Predict) -> float:
        """Return the squared error of a prediction over that of predicting zero."""
        squared_error = np.square(predict(held_out) - held_out_scores).sum()
        return float(squared_error / np.square(held_out_scores).sum())

    scores = training @ directions
    slopes = ((scores * training_scores).sum(0) / (scores**2).sum(0)).astype(np.float32)
    residuals = training_scores - scores * slopes
    ridge_weights = np.diag(slopes) + ridge_of_residuals(scores, residuals)
    models: dict[str, Predict] = {
        "posterior mean, each direction by itself": lambda x: (x @ directions) * slopes,
        "the same, corrected by ridge of all directions": lambda x: (
            (x @ directions) @ ridge_weights
        ),
        WEIGHTS_OF_SHRUNK: lambda x: (x @ directions) * shrinkage.weights[1],
        "probabilistic PCA, of first halves": probabilistic_pca(halves[0, second], directions),
    }
    errors = []
    for name, predict in models.items():
        errors.append({"model": name, "held-out error": f"{held_out_error(predict):.4f}"})

    networks = Patching.from_parcellation(cohort.parcellation)
    patchings = {"NERVE": networks, "NERVE, permuted networks": networks.permuted(seed)}
    for name, patching in patchings.items():
        correction = NERVECorrection(shrinkage, slopes, patching, seed)
        by_epoch = correction.train(training, training_scores, held_out_error, seed)
        models[f"{name}, {EPOCHS} epochs"] = correction.predict
        row = {
            "model": f"{name}, 0 … {EPOCHS} epochs",
            "held-out error": " ".join(f"{error:.4f}" for error in by_epoch),
        }
        errors.append(row)

    # not the participants from whom the directions were learned
    others = np.sort(np.concatenate([second, third]))
    feature_sets = {"tangent space": units[others]}
    for name, predict in models.items():
        feature_sets[name] = predict(units[others])
    rows = score_few_labels(cohort.subset(others), feature_sets, LABELLED["abide"])
    return pd.DataFrame(errors), pd.DataFrame(list(rows))


def main() -> None:
    """Read the command line and make the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=Path("out/posterior"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", action="store_true", help="Put the tables into the page.")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NerveWarning)
    errors, few_labels = compare_models(args.data, args.seed)
    write_tsv(args.out / "errors.tsv", errors)
    write_tsv(args.out / "few_labels.tsv", few_labels)
    tables = {
        "posterior": markdown_table(list(errors), errors.to_numpy(str).tolist()),
        "posterior-labels": few_labels_table(few_labels, reference=WEIGHTS_OF_SHRUNK),
    }
    for name, table in tables.items():
        print(table)
        if args.page:
            write_text(PAGE, fill(PAGE.read_text(), name, table))


if __name__ == "__main__":
    main()
