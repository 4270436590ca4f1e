"""CPU seconds of features against what they predict: age and sex of ABIDE, beside PCA of raw FC.

It needs the real data beside the checkout (../shared/data). Encoders see all participants without
labels, as in docs/benchmark.md; one run of NERVE is one seed. CPU seconds are those of fitting and
of computing the features of all participants.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks import row, timed

DATA = Path(__file__).parents[2] / "shared" / "data"
REFERENCE = "PCA, 256"
EPOCHS = (0, 1, 3)  # ten are in docs/benchmark.md
SCORES = {"age": "r", "sex": "auc"}


def make_methods() -> dict[str, Any]:
    """The methods that are compared, by the name of their rows."""
    from nerve.methods import make_method

    default_epochs = make_method("nerve", "default").epochs
    methods = {
        REFERENCE: make_method("pca", settings={"n_components": 256}),
        "tangent space": make_method("tangent"),
        "shrunk tangent space": make_method("shrunk"),
    }
    training = {0: "untrained", 1: "1 epoch"}
    for epochs in EPOCHS:
        name = f"NERVE, {training.get(epochs, f'{epochs} epochs')}"
        if epochs == default_epochs:
            name += ", the default"
        methods[name] = make_method("nerve", "default", {"epochs": epochs}, device="cpu")
    return methods


def run() -> list[dict[str, Any]]:
    if not DATA.is_dir():
        return [{"name": "not measured: the real data are not on this machine (../shared/data)"}]
    from studies._cohorts import read_abide

    import nerve
    from nerve.evaluation import score_table

    cohort = read_abide(DATA)
    features = {}
    seconds = {}
    for name, method in make_methods().items():
        features[name], seconds[name] = timed(
            lambda: method.fit(cohort).transform(cohort),  # noqa: B023
            time.process_time,
        )
    predictions = nerve.evaluate(features, cohort, list(SCORES), motion="none").predictions
    scores = score_table(predictions, n_bootstrap=0).set_index(["target", "row"])
    rows = []
    for name in features:
        rows.append(_row(f"{name}: CPU s against {REFERENCE}", seconds[name], seconds[REFERENCE]))
        for target, score in SCORES.items():
            value = float(scores.loc[(target, name), score])
            reference = float(scores.loc[(target, REFERENCE), score])
            rows.append(_row(f"{name}: {target} ({score}) against {REFERENCE}", value, reference))
    return rows


def _row(name: str, value: float, reference: float) -> dict[str, Any]:
    return row(name, value, reference, value / reference)
