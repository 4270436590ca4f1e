"""Sound files that `nerve` itself wrote: a cohort, a model, an evaluation and an experiment.

They are made once; each test damages a copy.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from tests.data.readers.write_formats import random_series

from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.experiments.experiment import Experiment
from torture._layouts import LABELS, N_REGIONS, N_VOLUMES, Files, put
from torture._processes import without_figures

HERE = b"/folder-of-the-case"  # stands for the folder of a case, in files that hold absolute paths
N_PARTICIPANTS = 16
SMALL = {
    "epochs": 1, "warmup_epochs": 0, "batch_size": 8, "dim": 8, "depth": 1, "heads": 2, "decoder_dim": 8,
    "decoder_depth": 1, "decoder_heads": 2, "mask_ratio": 0.5, "lr": 0.001, "seed": 0, "device": "cpu",
}  # fmt: skip
EXPERIMENT = {
    "name": "tiny",
    "title": "A tiny comparison",
    "layout": "methods",
    "parcellation": "cohort/regions.tsv",
    "preset": "small",
    "device": "cpu",
    "seeds": [0],
    "cohorts": {
        "alpha": {
            "path": "cohort",
            "targets": ["age"],
            "covariates": ["sex"],
            "site": "site",
            "label": "Alpha",
        },
        "beta": {
            "simulate": {
                "n": 12,
                "timepoints": 20,
                "parcellation": "cohort/regions.tsv",
                "seed": 1,
            },
            "targets": ["p_factor"],
            "pretrain": False,
        },
    },
    "methods": [
        {"method": "raw", "label": "Raw"},
        {
            "method": "nerve",
            "label": "NERVE",
            "group": "ours",
            "settings": {"epochs": 1, "dim": 8, "heads": 2},
        },
        {"method": "brainnetcnn", "settings": {"epochs": 1, "lr": 0.01, "dropout": 0.1}},
        {"method": "graphmae", "preset": "small", "settings": {"epochs": 1, "mask_ratio": 0.5}},
    ],
    "protocol": {
        "n_folds": 2,
        "n_inner_folds": 2,
        "n_bootstrap": 10,
        "kernel": "correlation",
        "seed": 1,
    },
    "slurm": {"minutes": 5, "cpus": 1, "extra": {}},
}


def make_cohort() -> Cohort:
    """A cohort with time series, sites and families, and one excluded participant."""
    rng = np.random.default_rng(0)
    series = [random_series(N_VOLUMES, N_REGIONS, i) for i in range(N_PARTICIPANTS)]
    table = pd.DataFrame({"participant_id": [f"S{i:02d}" for i in range(N_PARTICIPANTS)]})
    table["age"] = rng.normal(20, 3, N_PARTICIPANTS).round(1)
    table["sex"] = ["F", "M"] * (N_PARTICIPANTS // 2)
    table["site"] = ["here", "there"] * (N_PARTICIPANTS // 2)
    table["family"] = np.arange(N_PARTICIPANTS) // 2
    table["mean_fd"] = rng.uniform(0.1, 0.3, N_PARTICIPANTS).round(3)
    fc = np.stack([np.corrcoef(scan.T) for scan in series])
    networks = ("N1",) * 10 + ("N2",) * (N_REGIONS - 10)
    return Cohort(
        fc,
        table,
        Parcellation(tuple(LABELS), networks),
        series,
        exclusions=pd.DataFrame({"participant_id": ["S99"], "reason": ["moved"]}),
    )


@lru_cache(maxsize=1)
def sound_files() -> Files:
    """The files of cohort/, run/, probe/, results/ and study/ and their settings.

    `HERE` stands for their folder.
    """
    with tempfile.TemporaryDirectory() as temporary, without_figures():
        root = Path(temporary).resolve()
        make_cohort().save(root / "cohort")
        (root / "small.yaml").write_text(yaml.safe_dump(SMALL, sort_keys=False))
        experiment = yaml.safe_dump(EXPERIMENT, sort_keys=False)
        experiment = experiment.replace("cohort/regions.tsv", f"{root}/cohort/regions.tsv")
        (root / "study.yaml").write_text(experiment)
        (root / "table.csv").write_text(make_cohort().participants.to_csv(index=False))
        _run_nerve(
            "pretrain", root / "cohort", "--out", root / "run", "--config", root / "small.yaml",
            "--preset", "small",
        )  # fmt: skip
        _run_nerve("embed", root / "run", root / "cohort", root / "features.tsv")
        _run_nerve(
            "evaluate", root / "cohort", "--targets", "age", "--n-folds", 2, "--n-bootstrap", 20,
            "--out", root / "results",
            "--features", f"raw,{root / 'run'}", "--covariates", "sex",
        )  # fmt: skip
        _run_nerve(
            "evaluate", root / "cohort", "--targets", "age", "--n-folds", 2, "--n-bootstrap", 10,
            "--covariates", "sex", "--out", root / "kept", "--features", root / "run",
            "--save-model", root / "probe",
        )  # fmt: skip
        shutil.rmtree(root / "kept")
        # What `nerve experiment` does, without its report.
        Experiment.prepare(root / "study.yaml", root / "study").run(jobs=1)
        return {
            str(path.relative_to(root)): path.read_bytes().replace(str(root).encode(), HERE)
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.suffix not in (".html", ".lock")
        }


def _run_nerve(*words: object) -> None:
    """Run a command that must succeed."""
    from nerve.cli import main

    output = io.StringIO()
    arguments_before = sys.argv
    sys.argv = ["nerve", *map(str, words)]
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            main()
    except SystemExit as end:
        if end.code not in (0, None):
            raise RuntimeError(f"nerve {words[0]} failed: {output.getvalue()}") from end
    finally:
        sys.argv = arguments_before


def put_here(folder: Path, files: Files, *prefixes: str) -> None:
    """Write the files whose path begins with one of the prefixes, with the folder's own path."""
    own_path = str(folder).encode()
    chosen = {
        name: content.replace(HERE, own_path)
        for name, content in files.items()
        if name.startswith(prefixes)
    }
    put(folder, chosen)
