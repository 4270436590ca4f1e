"""Make the table of docs/howto/brainmarks.md: models of nerve in Brainmarks, on simulated scans.

`python -m studies.brainmarks OUT`, with the Python of the environment that `tools/brainmarks_environment.sh` makes.
Scans in which the coupling of some pairs of networks differs by sex are written in the layout of Brainmarks' data set
`abide`, a NERVE is trained on the training split, and `brainmarks.main_logistic` evaluates each model.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import nerve
from nerve import Cohort
from nerve._utils.files import write_text
from nerve.methods.brainmarks import REGIONS, SPACE

MODELS = [
    ("connectome_schaefer400", "cls"),
    ("nerve_tangent", "cls"),
    ("nerve_shrunk", "cls"),
    ("nerve_run", "cls"),
    ("nerve_run", "reg"),
    ("nerve_run", "patch"),
]
DATASET = "abide_sex"
SPLITS = {"train": 0.6, "validation": 0.2, "test": 0.2}
SECONDS_PER_VOLUME = 2.0


def split_cohort(cohort: Cohort) -> dict[str, Cohort]:
    """The participants of each split; simulated ones have no order, so the first are for training."""
    parts = {}
    start = 0
    for name, share in SPLITS.items():
        stop = start + round(share * len(cohort))
        parts[name] = cohort.subset(np.arange(start, min(stop, len(cohort))))
        start = stop
    return parts


def write_data(parts: dict[str, Cohort], root: Path) -> None:
    """Series and target as Brainmarks' script for ABIDE writes them, series in half precision."""
    import datasets

    n_regions = parts["train"].n_regions
    features = datasets.Features(
        {
            "sub": datasets.Value("string"),
            "n_frames": datasets.Value("int32"),
            "tr": datasets.Value("float32"),
            "bold": datasets.Array2D(shape=(None, n_regions), dtype="float16"),
            "mean": datasets.Array2D(shape=(1, n_regions), dtype="float32"),
            "std": datasets.Array2D(shape=(1, n_regions), dtype="float32"),
        }
    )
    sex_of = {}
    for split, cohort in parts.items():
        ids = cohort.participants["participant_id"]
        sex_of |= dict(zip(ids, cohort.participants["sex"].astype(str), strict=True))
        samples = []
        for participant, series in zip(ids, cohort.inputs("timeseries"), strict=True):
            mean = series.mean(axis=0, keepdims=True)
            std = series.std(axis=0, keepdims=True)
            sample = {
                "sub": participant,
                "n_frames": len(series),
                "tr": SECONDS_PER_VOLUME,
                "bold": ((series - mean) / std).astype(np.float16),
                "mean": mean,
                "std": std,
            }
            samples.append(sample)
        dataset = datasets.Dataset.from_list(samples, features=features)
        dataset.save_to_disk(root / f"abide.{SPACE}.arrow" / split)
    (root / "targets").mkdir()
    write_text(root / "targets" / "abide_target_map_sex.json", json.dumps(sex_of))


def environment(out: Path) -> dict[str, str]:
    """Where Brainmarks finds data and run; nothing is fetched, and caches stay in the folder."""
    home = out / "home"
    home.mkdir()
    return os.environ | {
        "HOME": str(home),
        "HF_HOME": str(home / "huggingface"),
        "HF_DATASETS_CACHE": str(home / "huggingface" / "datasets"),
        "HF_HUB_OFFLINE": "1",
        "TEMPLATEFLOW_AUTOUPDATE": "off",
        "WANDB_MODE": "disabled",
        "OMP_NUM_THREADS": "1",  # so that other programs on the machine slow it by their share alone
        "ABIDE_ROOT": str(out / "data"),
        "NERVE_RUN": str(out / "run"),
    }


def evaluate(model: str, representation: str, out: Path, variables: dict[str, str], trials: int):
    """One call of Brainmarks' logistic evaluation: its table."""
    settings = {
        "output_root": out / "output",
        "name": f"{model}__{representation}",
        "device": "cpu",
        "num_workers": 1,
        "batch_size": 16,
        "Cs": 5,
        "cv_folds": 3,
        "n_trials": trials,
    }
    overrides = [f"{name}={value}" for name, value in settings.items()]
    words = [sys.executable, "-m", "brainmarks.main_logistic", model, representation, DATASET]
    subprocess.run([*words, "--overrides", *overrides], env=variables, check=True)
    return pd.read_csv(out / "output" / settings["name"] / "eval_table.csv")


def row_of(model: str, representation: str, table: pd.DataFrame) -> str:
    """The line of the page: balanced accuracy of the test split, and over random splits."""
    tested = table[table["split"] == "test"]
    fixed = tested[tested["trial"].isna()].iloc[0]
    drawn = tested[tested["trial"].notna()]["bacc"]
    return (
        f"| `{model}` | {representation} | {fixed['bacc']:.2f} ± {fixed['bacc_std']:.2f} | "
        f"{drawn.mean():.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--participants", type=int, default=120)
    parser.add_argument("--volumes", type=int, default=100)
    parser.add_argument("--trials", type=int, default=2, help="random splits")
    parser.add_argument("--models", default="", help="names; all by default")
    arguments = parser.parse_args()

    out = arguments.out.resolve()
    out.mkdir(parents=True)
    # Brainmarks normalises each series, and pycortex writes a file at home when it is imported
    variables = environment(out)
    cohort = nerve.simulate_cohort(arguments.participants, REGIONS, arguments.volumes)
    parts = split_cohort(cohort)
    write_data(parts, out / "data")
    encoder = nerve.NERVE.from_preset("small", device="cpu").fit(parts["train"])
    encoder.save(out / "run")

    lines = [
        "| model | representation | test split | random splits |",
        "|---|---|---|---|",
    ]
    chosen = arguments.models.split(",") if arguments.models else [name for name, _ in MODELS]
    for model, representation in MODELS:
        if model not in chosen:
            continue
        table = evaluate(model, representation, out, variables, arguments.trials)
        lines.append(row_of(model, representation, table))
    write_text(out / "table.md", "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
