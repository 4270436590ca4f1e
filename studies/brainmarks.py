"""How do models of nerve compare in Brainmarks? The table of docs/howto/brainmarks.md.

`python -m studies.brainmarks OUT`, with the Python of the environment that
`tools/brainmarks_environment.sh` makes. It simulates scans in which the coupling of some pairs of
networks differs by sex, writes them in the layout of Brainmarks' data set `abide`, and trains a
NERVE on the training split. `brainmarks.main_logistic` then evaluates each model; OUT/table.md is
the table.
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

# model and representation, as Brainmarks calls them
MODELS = [
    ("connectome_schaefer400", "cls"),
    ("nerve_tangent", "cls"),
    ("nerve_shrunk", "cls"),
    ("nerve_run", "cls"),
    ("nerve_run", "reg"),
    ("nerve_run", "patch"),
]
DATASET = "abide_sex"
# split → share of the participants
SPLITS = {"train": 0.6, "validation": 0.2, "test": 0.2}
SECONDS_PER_VOLUME = 2.0


def split_cohort(cohort: Cohort) -> dict[str, Cohort]:
    """Return the participants of each split.

    Simulated participants are in no particular order, so the first ones are for training.
    """
    parts = {}
    start = 0
    for name, share in SPLITS.items():
        stop = start + round(share * len(cohort))
        parts[name] = cohort.subset(np.arange(start, min(stop, len(cohort))))
        start = stop
    return parts


def write_data(parts: dict[str, Cohort], root: Path) -> None:
    """Write series and targets as Brainmarks' script for ABIDE does.

    Each series is standardised, in half precision, with its means and standard deviations beside it.
    """
    import datasets  # only in Brainmarks' environment

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


def environment_variables(out: Path) -> dict[str, str]:
    """Return the variables by which Brainmarks finds the data and the run.

    Nothing is downloaded, and caches stay in the folder.
    """
    # a home of its own, because pycortex writes a file there when it is imported
    home = out / "home"
    home.mkdir()
    return os.environ | {
        "HOME": str(home),
        "HF_HOME": str(home / "huggingface"),
        "HF_DATASETS_CACHE": str(home / "huggingface" / "datasets"),
        "HF_HUB_OFFLINE": "1",
        "TEMPLATEFLOW_AUTOUPDATE": "off",
        "WANDB_MODE": "disabled",
        # so that other programs on the same cores slow it by no more than their share
        "OMP_NUM_THREADS": "1",
        "ABIDE_ROOT": str(out / "data"),
        "NERVE_RUN": str(out / "run"),
    }


def evaluate_model(
    model: str, representation: str, out: Path, variables: dict[str, str], n_trials: int
) -> pd.DataFrame:
    """Run Brainmarks' logistic evaluation of one model and return its table.

    Parameters
    ----------
    model, representation : str
        As in `MODELS`.
    out : Path
        The folder of this study.
    variables : dict
        Environment variables.
    n_trials : int
        Random splits, besides the fixed one.

    Returns
    -------
    DataFrame
    """
    name = f"{model}__{representation}"
    settings = {
        "output_root": out / "output",
        "name": name,
        "device": "cpu",
        "num_workers": 1,
        "batch_size": 16,
        "Cs": 5,
        "cv_folds": 3,
        "n_trials": n_trials,
    }
    overrides = [f"{setting}={value}" for setting, value in settings.items()]
    command = [sys.executable, "-m", "brainmarks.main_logistic", model, representation, DATASET]
    subprocess.run([*command, "--overrides", *overrides], env=variables, check=True)
    return pd.read_csv(out / "output" / name / "eval_table.csv")


def markdown_line(model: str, representation: str, table: pd.DataFrame) -> str:
    """Return a line of the page: balanced accuracy in the test split, and over random splits."""
    test_scores = table[table["split"] == "test"]
    is_fixed_split = test_scores["trial"].isna()
    fixed = test_scores[is_fixed_split].iloc[0]
    random_mean = test_scores.loc[~is_fixed_split, "bacc"].mean()
    accuracy = f"{fixed['bacc']:.2f} ± {fixed['bacc_std']:.2f}"
    return f"| `{model}` | {representation} | {accuracy} | {random_mean:.2f} |"


def main() -> None:
    """Read the command line, simulate, evaluate and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--participants", type=int, default=240)
    parser.add_argument("--volumes", type=int, default=200)
    parser.add_argument(
        "--strength",
        type=float,
        default=0.2,
        help="of the planted effects, as in nerve.simulate_cohort",
    )
    parser.add_argument("--trials", type=int, default=5, help="random splits")
    parser.add_argument("--models", default="", help="names; all by default")
    args = parser.parse_args()

    out = args.out.resolve()
    out.mkdir(parents=True)
    variables = environment_variables(out)
    cohort = nerve.simulate_cohort(args.participants, REGIONS, args.volumes, strength=args.strength)
    parts = split_cohort(cohort)
    write_data(parts, out / "data")
    encoder = nerve.NERVE.from_preset("small", device="cpu").fit(parts["train"])
    encoder.save(out / "run")

    lines = [
        "| model | representation | test split | random splits |",
        "|---|---|---|---|",
    ]
    chosen_models = args.models.split(",") if args.models else [model for model, _ in MODELS]
    for model, representation in MODELS:
        if model not in chosen_models:
            continue
        table = evaluate_model(model, representation, out, variables, args.trials)
        lines.append(markdown_line(model, representation, table))
    text = "\n".join(lines)
    write_text(out / "table.md", f"{text}\n")
    print(text)


if __name__ == "__main__":
    main()
