"""An evaluation as a folder: folds, predictions, scores, comparisons and the protocol in words. Resumable.

Each feature set's predictions are kept in `parts/` under a fingerprint of all that decides them; a run that was
interrupted, or is asked again with one more feature set, computes only what is not there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve.cohort import Cohort
from nerve.evaluation.features import FeatureSet
from nerve.evaluation.people import People, prepare_people
from nerve.evaluation.permutation import benjamini_hochberg, permutation_p
from nerve.evaluation.protocol_text import protocol_text
from nerve.evaluation.run import Progress, all_notes, null_of_one, predict_one
from nerve.evaluation.settings import Settings
from nerve.evaluation.statistics import all_comparisons, motion_table, score_table
from nerve.files import claim, read_tsv, write_json, write_markdown, write_tsv

VERSION = 1  # of the parts; raised when the same settings would give other predictions


def evaluate_to(
    out: str | os.PathLike[str],
    sets: Sequence[FeatureSet],
    cohort: Cohort,
    settings: Settings,
    progress: Progress | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Evaluate feature sets on the same folds and write everything to a folder.

    Returns
    -------
    scores, comparisons : DataFrame
        What scores.tsv and comparisons.tsv hold.
    notes : list of str
        Who was left out, what was added, what to beware of.
    """
    people, settings = prepare_people(cohort, settings)
    out = claim(out)
    notes = all_notes(people, sets, settings)
    write_tsv(out / "folds.tsv", folds_table(people))
    parts, nulls = [], {}
    for one in sets:
        key = part_name(one, cohort, people, settings)
        parts.append(
            _kept(out / "parts" / f"{key}.tsv", lambda one=one: predict_one(one, cohort, people, settings, progress))
        )
        if settings.n_permutations and one.kind != "model":  # training a network a thousand times is another plan
            null = _kept(
                out / "parts" / f"{key}-null{settings.n_permutations}.tsv",
                lambda one=one: pd.DataFrame(null_of_one(one, cohort, people, settings, progress)),
            )
            nulls[one.name] = null
    predictions = pd.concat(parts, ignore_index=True)
    families = None if people.groups is None else dict(zip(people.ids, people.groups, strict=True))
    scores = _scores(predictions, people, settings, sets, nulls, families)
    comparisons = all_comparisons(predictions, settings.n_bootstrap, settings.seed, families)
    write_tsv(out / "predictions.tsv", predictions)
    write_tsv(out / "scores.tsv", scores)
    write_tsv(out / "comparisons.tsv", comparisons)
    # ids of people belong in tables of people only
    public = [note for note in notes if not any(note in one.notes for one in sets)]
    write_markdown(out / "protocol.md", protocol_text(settings, people, sets, public))
    write_json(out / "settings.json", _record(settings, cohort, people, sets))
    return scores, comparisons, notes


def folds_table(people: People) -> pd.DataFrame:
    """participant_id, repeat, fold; people in no fold are left out."""
    tables = [
        pd.DataFrame({"participant_id": people.ids, "repeat": repeat, "fold": folds})[folds >= 0]
        for repeat, folds in enumerate(people.folds)
    ]
    return pd.concat(tables, ignore_index=True)


def part_name(features: FeatureSet, cohort: Cohort, people: People, settings: Settings) -> str:
    """The feature set's name and a hash of what decides its predictions."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(json.dumps([VERSION, settings.deciding()], sort_keys=True, default=str).encode())
    digest.update(features.fingerprint(cohort).encode() + features.missing.tobytes() + people.folds.tobytes())
    for table in (people.targets, people.covariates, people.table):
        digest.update(table.to_csv(index=False).encode())
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', features.name)[:60]}-{digest.hexdigest()}"


def _kept(path: Path, compute: Any) -> pd.DataFrame:
    """The table at `path`, computed and written first if it is not there."""
    if not path.is_file():
        write_tsv(path, compute())
    types = {"participant": str, "cohort": str, "target": str, "method": str, "variant": str}
    return read_tsv(path, dtype=types).fillna(dict.fromkeys(types, ""))  # a cohort may be called nothing


def _scores(
    predictions: pd.DataFrame,
    people: People,
    settings: Settings,
    sets: Sequence[FeatureSet],
    nulls: dict[str, pd.DataFrame],
    families: dict | None,
) -> pd.DataFrame:
    scores = score_table(predictions, settings.n_bootstrap, settings.seed, families)
    scores["pretrain_scope"] = scores["method"].map({one.name: one.pretrain_scope for one in sets})
    if nulls:
        scores["p"] = [
            permutation_p(nulls[method][target].to_numpy(float), r) if method in nulls else np.nan
            for method, target, r in zip(scores["method"], scores["target"], scores["r"], strict=True)
        ]
        scores["q"] = np.nan
        for _, index in scores.groupby("method").groups.items():
            scores.loc[index, "q"] = benjamini_hochberg(scores.loc[index, "p"])
    if people.motion:
        values = pd.Series(people.table[people.motion].to_numpy(float, na_value=np.nan), index=people.ids)
        keys = ["cohort", "target", "method", "variant", "seed"]
        scores = scores.merge(motion_table(predictions, values), on=keys, how="left")
    return scores


def _record(settings: Settings, cohort: Cohort, people: People, sets: Sequence[FeatureSet]) -> dict[str, Any]:
    from importlib.metadata import version

    packages = ("nerve-fc", "numpy", "scipy", "scikit-learn", "pandas")
    return {
        "settings": settings.as_dict(),
        "cohort": {"name": cohort.name, "n_participants": len(cohort), "fingerprint": cohort.fingerprint},
        "features": [{"name": one.name, "kind": one.kind, "pretrain_scope": one.pretrain_scope} for one in sets],
        "classes": {name: {"0": zero, "1": one} for name, (zero, one) in people.classes.items()},
        "versions": {name: version(name) for name in packages},
    }
