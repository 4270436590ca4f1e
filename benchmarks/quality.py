"""What features cost and what they predict: age and sex of ABIDE against CPU seconds, beside PCA of raw FC.

It needs the real data beside the checkout (../shared/data). Encoders see everyone without labels, as in
docs/benchmark.md; one run of NERVE is one seed. CPU seconds are those of fitting and of the features of everyone.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "shared" / "data"
REFERENCE = "PCA, 256"
EPOCHS = (0, 1, 3)  # ten are in docs/benchmark.md
SCORES = {"age": "r", "sex": "auc"}


def sets() -> dict[str, Any]:
    from nerve.methods import make_method

    default = make_method("nerve", "default").epochs
    found = {
        REFERENCE: make_method("pca", settings={"n_components": 256}),
        "tangent space": make_method("tangent"),
        "shrunk tangent space": make_method("shrunk"),
    }
    for epochs in EPOCHS:
        name = "NERVE, " + {0: "untrained", 1: "1 epoch"}.get(epochs, f"{epochs} epochs")
        name += ", the default" if epochs == default else ""
        found[name] = make_method("nerve", "default", {"epochs": epochs}, device="cpu")
    return found


def run() -> list[dict[str, object]]:
    if not DATA.is_dir():
        return [{"name": "not measured: the real data are not on this machine (../shared/data)"}]
    from studies._cohorts import read_abide

    import nerve
    from nerve.evaluation import score_table

    cohort = read_abide(DATA)
    features, seconds = {}, {}
    for name, method in sets().items():
        began = time.process_time()
        features[name] = method.fit(cohort).transform(cohort)
        seconds[name] = time.process_time() - began
    predictions = nerve.evaluate(features, cohort, list(SCORES), motion="none").predictions
    scores = score_table(predictions, n_bootstrap=0).set_index(["target", "row"])
    rows: list[dict[str, object]] = []
    for name in features:
        rows.append(_row(f"{name}: CPU s against {REFERENCE}", seconds[name], seconds[REFERENCE]))
        for target, score in SCORES.items():
            found, reference = (
                float(scores.loc[(target, one), score]) for one in (name, REFERENCE)
            )
            rows.append(_row(f"{name}: {target} ({score}) against {REFERENCE}", found, reference))
    return rows


def _row(name: str, value: float, reference: float) -> dict[str, object]:
    return {"name": name, "value": value, "reference": reference, "ratio": value / reference}
