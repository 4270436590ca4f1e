"""`Results` of an evaluation, in memory or in a folder.

The tables of a folder belong together: protocol.json holds a digest of each, and an id of all.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pandas as pd

from nerve._utils.errors import problem
from nerve._utils.files import claim, read_json, read_tsv, write_json, write_tsv
from nerve._utils.privacy import printable_table, printable_tree
from nerve.evaluation.comparisons import compare
from nerve.evaluation.predictions_table import with_lines
from nerve.evaluation.whole_table import WholeTable

FORMAT = 3
PROTOCOL = "protocol.json"
# entries of protocol.json that are not of the evaluation but of the folder
_HEADER = ("format", "id", "files")
AGAIN = "Run the evaluation or experiment again."
_NULL_COLUMNS = ["cohort", "target", "row", "r"]
_CURVE_COLUMNS = ["cohort", "target", "row", "labels", "draw", "metric", "score"]
TABLES = ("rows", "cohorts", "folds", "predictions", "scores", "comparisons", "nulls", "curves")
# columns of text, which may be empty
_TEXT = [
    "row",
    "line",
    "method",
    "label",
    "kind",
    "group",
    "view",
    "variant",
    "preset",
    "title",
    "swept",
    "scope",
    "trained_on",
    "adapted",
    "pretrained_on",
    "cohort",
    "target",
    "class_column",
    "participant",
    "line_a",
    "line_b",
    "metric",
    "among",
]
# columns of true or false
_FLAGS = ["tie", "best_two", "simulated", "trained_before"]


@dataclass
class Results:  # numpydoc ignore=PR02
    """Tables of everything that an evaluation computed; those not asked for are empty.

    Parameters
    ----------
    about : dict
        What protocol.json holds: title, layout, parcellation, protocol of each cohort, versions.
    rows : DataFrame
        What each row is: see `nerve.evaluation.Row`.
    cohorts : DataFrame
        cohort, label, n, n_regions, parcellation, fingerprint, pretrained_on, simulated.
    folds : DataFrame
        cohort, participant, repeat, fold, group_number (those of one group are kept together).
    predictions : DataFrame
        cohort, target, row, participant, fold, observed (after covariates), predicted,
        observed_raw, and, where there are any, repeat, training_mean and class_column (the column
        of the classes, where the target is one class against all others).
    scores : DataFrame
        One row per cohort, target and row: scope, n, r with its 95 % interval, all other scores.
        It prints whole.
    comparisons : DataFrame
        cohort, target, line_a, line_b, among, metric, difference, p_cv, q_cv, p, q (the paper's
        test), tie, best_two.
    nulls : DataFrame
        cohort, target, row, r: of permuted targets.
    curves : DataFrame
        cohort, target, row, labels, draw, metric, score.

    Examples
    --------
    >>> import nerve
    >>> cohort = nerve.simulate_cohort(40, parcellation="schaefer100-17", timepoints=60)
    >>> results = nerve.evaluate("raw", cohort, targets="age", motion="none", n_folds=4)
    >>> results.scores[["target", "row"]].values.tolist()
    [['age', 'raw']]
    """

    about: dict[str, Any]
    rows: pd.DataFrame
    cohorts: pd.DataFrame
    folds: pd.DataFrame
    predictions: pd.DataFrame
    scores: pd.DataFrame
    comparisons: pd.DataFrame
    nulls: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=_NULL_COLUMNS))
    curves: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=_CURVE_COLUMNS))

    def __post_init__(self) -> None:
        self.scores = WholeTable(self.scores)

    def compare(self, line_a: str | None = None, line_b: str | None = None) -> pd.DataFrame:
        """Compare lines by the corrected test and by the paper's paired bootstrap.

        Parameters
        ----------
        line_a, line_b : str, optional
            Ids of lines in `rows`. Without them every two methods are compared, and the best with
            each reference.

        Returns
        -------
        DataFrame
            One row per cohort, target and pair, as `nerve.evaluation.compare` gives it: scores and
            their difference; difference_low_cv, difference_high_cv and p_cv of the corrected test;
            difference_low, difference_high and p of the paper's test.
        """
        if line_a is None or line_b is None:
            return self.comparisons
        parts = []
        table = with_lines(self.predictions, self.rows)
        for cohort, part in table.groupby("cohort", sort=False):
            protocol = self.about["protocols"][cohort]
            own = self.folds[self.folds["cohort"] == cohort].drop_duplicates("participant")
            groups = dict(zip(own["participant"], own["group_number"], strict=True))
            has_groups = own["group_number"].nunique() < len(own)
            parts.append(
                compare(
                    part,
                    line_a,
                    line_b,
                    n_bootstrap=protocol["n_bootstrap"],
                    seed=protocol["seed"],
                    groups=groups if has_groups else None,
                )
            )
        return pd.concat(parts, ignore_index=True)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write every table and, last, protocol.json, which holds their digests.

        Parameters
        ----------
        folder : path
            Made if it is not there; results that it holds are replaced.

        Returns
        -------
        Path
            The folder.
        """
        folder = claim(folder)
        for name in TABLES:
            table = printable_table(getattr(self, name))
            if name == "rows":
                texts = [json.dumps(settings, default=str) for settings in self.rows["settings"]]
                table = table.assign(settings=texts)
            write_tsv(folder / f"{name}.tsv", table)
        files = {name: _digest(folder / f"{name}.tsv") for name in TABLES}
        # plain values, as they are read again
        about = printable_tree(json.loads(json.dumps(self.about, default=str)))
        # results that were loaded bring the header of their folder with them
        about = {name: value for name, value in about.items() if name not in _HEADER}
        header = {"format": FORMAT, "id": _identity(files, about), "files": files}
        write_json(folder / PROTOCOL, header | about)
        return folder

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote, and refuse tables that were changed or are of another evaluation.

        Parameters
        ----------
        folder : path
            What `save` returned.

        Returns
        -------
        Results
            The results.
        """
        folder = Path(folder)
        about = read_json(folder / PROTOCOL)
        is_protocol = isinstance(about, dict) and isinstance(about.get("files"), dict)
        if not is_protocol or about.get("format") != FORMAT:
            raise problem(
                folder / PROTOCOL,
                f"it is not of format {FORMAT}",
                remedy="Evaluate again with this version.",
            )
        files = about["files"]
        content = {name: value for name, value in about.items() if name not in _HEADER}
        if _identity(files, content) != about.get("id"):
            raise problem(folder / PROTOCOL, "it has been changed", remedy=AGAIN)
        tables = {}
        for name in TABLES:
            path = folder / f"{name}.tsv"
            if not path.is_file():
                raise problem(path, "it is not there", remedy=AGAIN)
            tables[name] = _read_table(path)
            if _digest(path) != files.get(name):
                raise problem(path, f"it is not the one that {PROTOCOL} belongs to", remedy=AGAIN)
        tables["rows"]["settings"] = [json.loads(text) for text in tables["rows"]["settings"]]
        return cls(about=about, **tables)


def is_results(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a finished evaluation."""
    return (Path(folder) / PROTOCOL).is_file()


def _identity(files: dict[str, str], about: dict[str, Any]) -> str:
    """A digest of the digests of all files and of the rest of protocol.json."""
    text = json.dumps([files, about], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _read_table(path: Path) -> pd.DataFrame:
    table = read_tsv(path, dtype=dict.fromkeys((*_TEXT, "settings", *_FLAGS), str))
    for name in table.columns.intersection(list(_TEXT)):
        table[name] = table[name].fillna("")
    for name in table.columns.intersection(list(_FLAGS)):
        table[name] = table[name] == "True"
    return table


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
