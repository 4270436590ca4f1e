"""Every command of `nerve`: arguments with which it works quickly, and values that it does not expect.

Commands are found by walking the application. NUL is not among the values: no command line can
hold it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

Values = dict[str, Any]  # parameter -> value, or values, as given on the command line

WORDS = [
    "", " ", "abc", "-1", "0", "1", "1.5", "nan", "inf", "-inf", "1e400", "9" * 30, str(2**63), "0x10", "１", "true",
    "none", "auto", "a/b", "../../escaped", ".", "..", "x\ny", "💥\u202e", "é" * 3000, "~", "$(touch x)", "%s%n",
    "[bold]x[/bold]", "=1+1", "-", "--", "a,b,,c", ",", "age,age", "age=1", "=", "a=[", "epochs=", "lr=nan", "dim=-1",
    "file:///etc/passwd", "cuda", "cuda:99", "meta", "slurm", "{in}/nothing", "{in}", "{in}/loop", "{in}/empty",
    "{in}/binary", "{in}/cohort/cohort.json", "{in}/cohort/connectivity.npy", "{in}/run", "schaefer100-7",
]  # fmt: skip
OUTPUTS = [
    "", " ", "{out}/a/b/c", "{out}/x\ny", "{out}/💥\u202e", "{out}/" + "é" * 3000, "{out}/.", "{out}/a/..",
    "{out}/there", "{out}/there/below", "{out}/loop", "{out}/loop/below", "{out}/full", "{in}/binary/below", "{out}",
    "/proc/self/nothing", "/dev/null/x", "{out}/-", "{out}/x.tsv", "{out}/x.npy", "{out}/x.csv",
]  # fmt: skip
LARGE = {  # parameters for which a large number means much work, not a mistake
    "subjects", "timepoints", "sites", "jobs", "epochs",
    "n_repeats", "n_bootstrap", "n_permutations", "n_components", "n_folds", "n_inner_folds", "n_draws", "n_landmarks",
    "exact_up_to",
}  # fmt: skip


def working_arguments(command: str) -> Values:
    """Arguments with which a command works, and finishes quickly."""
    regions = "{in}/cohort/regions.tsv"
    return {
        "atlas list": {},
        "atlas show": {"name": regions},
        "simulate": {"out": "{out}/new", "subjects": "12", "parcellation": regions, "timepoints": "20"},
        "ingest": {"source": "{in}/source", "out": "{out}/new", "parcellation": regions},
        "check": {"cohort": "{in}/cohort", "out": "{out}/check.tsv"},
        "resample": {"cohort": "{in}/cohort", "out": "{out}/new", "parcellation": regions},
        "pretrain": {"cohorts": ["{in}/cohort"], "out": "{out}/run", "preset": "small", "config": "{in}/small.yaml"},
        "embed": {"run": "{in}/run", "cohort": "{in}/cohort", "out": "{out}/new.tsv"},
        "interpret": {
            "runs": ["{in}/run"], "cohort": "{in}/cohort", "targets": "age", "out": "{out}/maps", "n_folds": "2",
            "n_bootstrap": "10",
        },
        "methods": {"parcellation": "schaefer100-7"},
        "evaluate": {
            "cohort": "{in}/cohort", "targets": "age", "out": "{out}/results", "n_folds": "2", "n_bootstrap": "10",
            "features": "raw,covariates", "covariates": "sex", "site": "site",
        },
        "run": {
            "cohort": "{in}/cohort", "targets": "age", "out": "{out}/ran", "n_folds": "2", "n_bootstrap": "10",
            "model": "{in}/run",
        },
        "pack": {"run": "{in}/run", "archive": "{out}/model.zip"},
        "models list": {},
        "models show": {"model": "{in}/run"},
        "predict": {"probe": "{in}/probe", "cohort": "{in}/cohort", "out": "{out}/predicted.tsv"},
        "export": {"cohort": "{in}/cohort", "out": "{out}/exported"},
        "experiment": {"config": "{in}/study.yaml", "out": "{out}/study", "dry_run": True},
        "report": {"folder": "{in}/nothing"},
        "demo": {"out": "{out}/demo", "jobs": "0"},
    }[command]  # fmt: skip


def commands(group: Any = None, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every command of the application with its name."""
    if group is None:
        from nerve.cli import app

        group = typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def command_line(command: str, parameters: list[Any], values: Values) -> list[str]:
    """The words of a command line: command, options, arguments."""
    options: list[str] = []
    arguments: list[str] = []
    for parameter in parameters:
        if parameter.name not in values:
            continue
        value = values[parameter.name]
        items = value if isinstance(value, list) else [value]
        option = parameter.opts[0]
        if parameter.param_type_name == "argument":
            arguments += items
        elif getattr(parameter, "is_flag", False):
            options.append(option if value is True else f"{option}={value}")
        else:
            for item in items:
                options += [option, item]
    return [*command.split(), *options, *arguments]


def make_odd_places(folder: Path) -> None:
    """Make what the odd values name: links to themselves, empty and binary files, existing output."""
    inside = folder / "in"
    outside = folder / "out"
    for place in (inside, outside):
        (place / "loop").symlink_to("loop")
    (inside / "empty").write_bytes(b"")
    (inside / "binary").write_bytes(bytes(range(256)) * 8)
    (outside / "there").write_text("a file of the user")
    (outside / "full").mkdir()
    (outside / "full/mine.txt").write_text("keep")
