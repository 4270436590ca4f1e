"""Read a folder of results or of a training run into `ReportData`, and nothing outside the folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.archives import refuse_bomb
from nerve._utils.errors import NerveError, listed, problem
from nerve._utils.files import read_json, read_tsv
from nerve._utils.privacy import Identifiers, name_in_results, printable_name
from nerve.data.cohort import Cohort
from nerve.data.common_space import meeting_sentences
from nerve.data.parcellation import Parcellation, load_parcellation, parcellation_names
from nerve.data.quality.likeness import FEWEST, Likeness
from nerve.evaluation.results import AGAIN, PROTOCOL, Results, is_results
from nerve.report.report_data import CohortFacts, EncoderRun, ReportData, cohort_facts, ids_of
from nerve.report.words import learning_notices, methods_text, run_text

CHECKS = "quality.tsv"  # the table of `nerve check`, where it was run
_RUN_COLUMNS = ("id", "kind", "line", "cohort", "target", "run", "status", "reason")


def load_results(
    folder: str | os.PathLike[str], cohorts: Mapping[str, Cohort] | None = None
) -> ReportData:
    """Read what `nerve experiment`, `nerve evaluate` or `nerve pretrain` wrote.

    Parameters
    ----------
    folder : path
        Folder of results or of a training run.
    cohorts : mapping, optional
        Cohorts by name, for what only they know: who took part, mean FC. Cohorts in
        `folder`/cohorts are found without being named; no other file is opened.

    Returns
    -------
    ReportData
        What figures and the page show, without identifiers.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise problem(
            folder,
            "there is no such folder",
            expected="what nerve experiment, evaluate or pretrain wrote",
        )
    _refuse_links(folder)
    if not is_results(folder) and not (folder / "history.tsv").is_file():
        expected = "a finished evaluation or a training run"
        raise problem(folder, f"there is no {PROTOCOL}", expected=expected, remedy=AGAIN)
    try:
        if is_results(folder):
            return _load_evaluation(folder, dict(cohorts or {}))
        return _load_run(folder, dict(cohorts or {}))
    except NerveError:
        raise
    except Exception as error:  # files that others have sent may hold anything
        what = f"its files do not hold what nerve writes there ({type(error).__name__}: {error})"
        raise problem(folder, what, remedy=AGAIN) from error


def cohorts_by_name(folder: str | os.PathLike[str], cohorts: Sequence[Cohort]) -> dict[str, Cohort]:
    """Find the name of each cohort in the results; a cohort is recognised by its content.

    Parameters
    ----------
    folder : path
        What `nerve experiment`, `nerve evaluate` or `nerve pretrain` wrote.
    cohorts : sequence of Cohort
        One that was not evaluated there, or was changed since, is refused.

    Returns
    -------
    dict
        Name in the results → cohort.
    """
    if not is_results(folder):  # a training run, which knows the FC that it was trained on
        _check_trained_on(Path(folder), cohorts)
        return {cohort.name: cohort for cohort in cohorts}
    table = Results.load(folder).cohorts
    name_of = dict(zip(table["fingerprint"], table["cohort"], strict=True))
    by_name = {}
    for cohort in cohorts:
        if cohort.fingerprint not in name_of:
            what = f"{cohort.name!r} is not what was evaluated here, or was changed since"
            expected = f"one of {listed(table['cohort'])}"
            raise problem("--cohort", what, expected=expected, remedy=AGAIN)
        by_name[str(name_of[cohort.fingerprint])] = cohort
    return by_name


def load_tables(folder: str | os.PathLike[str]) -> ReportData:
    """The tables of a results folder, without what its runs and cohorts add."""
    return ReportData.from_results(Results.load(folder), runs=_read_runs(Path(folder)))


def _load_evaluation(folder: Path, given_cohorts: dict[str, Cohort]) -> ReportData:
    """A folder of `nerve experiment` or `nerve evaluate`."""
    stored = Results.load(folder)
    runs = _read_runs(folder)
    results = ReportData.from_results(stored, runs=runs)

    opened = {}
    for name in results.cohorts:
        path = _child(folder / "cohorts", name)
        if path is not None and (path / "cohort.json").is_file():
            opened[name] = Cohort.load(path)
    for name, cohort in given_cohorts.items():
        opened[_name_in(stored.cohorts, name)] = cohort
    facts = dict(results.cohorts)
    for name, cohort in opened.items():
        facts[name] = cohort_facts(cohort, facts[name])

    encoders = []
    models: dict[str, Path] = {}  # line → description of a trained model that was given
    warnings = list(stored.about.get("warnings", []))
    likeness: dict[tuple[str, str], Likeness] = {}
    for row in runs.itertuples():  # an experiment has runs
        path = _child(folder / "runs", str(row.id))
        if path is None:
            continue
        line = str(row.line)
        warnings += _read_json(path / "manifest.json").get("warnings", [])
        if row.kind == "encode" and line not in results.null_lines:
            label = results.label(line)
            seeds = stored.rows.loc[stored.rows["line"] == line, "seed"]
            seed = re.search(r" · seed \d+$", str(row.run))
            if seeds.nunique() > 1 and seed:
                label += seed[0]
            encoders.append(_read_encoder(path, label))
        if (path / "model" / "config.json").is_file():
            models[line] = path / "model"  # the same on every cohort: the last one will do
            likeness_of_run = Likeness.load(path / "model")
            if likeness_of_run is not None:
                likeness[results.label(line), str(row.cohort)] = likeness_of_run
    for row_number, line in enumerate(stored.rows["line"]):  # an evaluation has models
        path = _child(folder / "models", str(row_number))
        if path is None or not (path / "config.json").is_file():
            continue
        models[str(line)] = path
        for cohort_number, cohort_name in enumerate(stored.cohorts["cohort"]):
            likeness_folder = _child(path / "likeness", str(cohort_number))
            if likeness_folder is None:
                continue
            likeness_of_cohort = Likeness.load(likeness_folder)
            if likeness_of_cohort is not None:
                likeness[results.label(str(line)), str(cohort_name)] = likeness_of_cohort
    encoders += [_read_encoder(path, results.label(line)) for line, path in models.items()]

    # Only an atlas that nerve ships is loaded: a path that stands in the folder is never followed.
    parcellation = None
    parcellation_name = str(stored.about.get("parcellation"))
    if parcellation_name.removesuffix("+aseg19") in parcellation_names():
        parcellation = load_parcellation(parcellation_name)
    results = replace(
        results,
        cohorts=facts,
        encoders=encoders,
        likeness=likeness,
        checks=_read_table(folder / CHECKS, dtype=str),
        interpretation=_read_interpretation(folder),
        parcellation=parcellation,
        warnings=warnings,
        notices=[
            *meeting_sentences(stored.about.get("resampling", {})),
            *learning_notices(encoders),
        ],
    )
    results = replace(results, methods_text=methods_text(results))
    ids = set()
    for table in (stored.folds, stored.predictions):
        ids |= {str(name) for name in table.get("participant", pd.Series()).unique()}
    return _without_ids(results, ids, opened)


def _load_run(folder: Path, cohorts: dict[str, Cohort]) -> ReportData:
    """A folder of `nerve pretrain`, finished or not."""
    config = _read_json(folder / "config.json")
    method = str(config.get("method", "an encoder"))
    regions = config.get("parcellation", {})
    about = {
        "kind": "run",
        "method": method.lower(),
        "command": "nerve pretrain COHORT --out DIR",
        "parcellation": regions.get("name", ""),
        "versions": {"nerve-fc": config.get("nerve_version"), "torch": config.get("torch_version")},
        "seeds": [config["parameters"].get("seed", 0)] if config else [],
        "data": {"training": config.get("data", {}).get("fingerprint")},
    }
    parcellation = None
    if regions:
        table = pd.DataFrame(regions["regions"])
        parcellation = Parcellation.from_table(table, name=str(regions["name"]))
    encoder = _read_encoder(folder, printable_name(folder.name))
    notices = []
    if not config:
        notices.append(
            "The run is not finished: it has no config.json. What it has written so far is shown."
        )
    results = ReportData(
        title=f"Pretraining of {method}",
        about=about,
        cohorts={name: cohort_facts(cohort) for name, cohort in cohorts.items()},
        encoders=[encoder],
        parcellation=parcellation,
        methods_text=[run_text(config)] if config else [],
        notices=notices,
    )
    return _without_ids(results, set(), cohorts)


def _check_trained_on(folder: Path, cohorts: Sequence[Cohort]) -> None:
    """Refuse a cohort that the run was not trained on; its FC decides, not its name."""
    path = folder / "config.json"
    config = read_json(path) if cohorts and path.is_file() else {}
    data = config.get("data", {}) if isinstance(config, dict) else {}
    for cohort in cohorts:
        if cohort.fc_fingerprint not in data.get("fc", ()):
            raise problem(
                "--cohort",
                f"{cohort.name!r} is not what was trained on here, or was changed since",
                expected=f"one of {listed(data.get('cohorts', ())) or 'a run that is finished'}",
                remedy=AGAIN,
            )


def _name_in(table: pd.DataFrame, name: str) -> str:
    """The name of a cohort in the results; one that was not evaluated is refused."""
    for candidate in (name, name_in_results(name)):
        if candidate in set(table["cohort"]):
            return candidate
    expected = f"one of {listed(table['cohort'])}"
    raise problem("--cohort", f"{name!r} was not evaluated here", expected=expected)


def _without_ids(results: ReportData, ids: set[str], cohorts: Mapping[str, Cohort]) -> ReportData:
    """Remove ids and paths from every sentence, and means over few participants."""
    for cohort in cohorts.values():
        ids = ids | ids_of(cohort)
    scrub = Identifiers(ids).removed_from
    runs = results.runs
    if len(runs):
        runs = runs.assign(reason=runs["reason"].map(scrub))
    return replace(
        results,
        runs=runs,
        cohorts={name: _scrub_facts(facts, scrub) for name, facts in results.cohorts.items()},
        about={**results.about, "command": scrub(results.about.get("command", ""))},
        checks=results.checks.fillna("").map(scrub),
        methods_text=list(dict.fromkeys(map(scrub, results.methods_text))),
        warnings=list(dict.fromkeys(map(scrub, results.warnings))),
    )


def _scrub_facts(facts: CohortFacts, scrub: Callable[[object], str]) -> CohortFacts:
    """Remove a mean over few participants, and ids from reasons, which are then counted again."""
    reasons = facts.left_out.assign(reason=facts.left_out["reason"].map(scrub))
    left_out = reasons.groupby("reason", sort=False)[["participants"]].sum().reset_index()
    mean = facts.mean if facts.n_in_mean >= FEWEST else None
    return replace(facts, left_out=left_out, mean=mean)


def _refuse_links(folder: Path) -> None:
    """Refuse links that lead out of a folder: it may come from others, who could point anywhere."""
    inside = folder.resolve()
    for path in folder.rglob("*"):
        if path.is_symlink() and not path.resolve().is_relative_to(inside):
            raise problem(
                path,
                "it is a link out of the folder, and nothing outside it is read",
                remedy="Put the file itself there; a cohort elsewhere is named with --cohort.",
            )


def _child(folder: Path, name: str) -> Path | None:
    """The folder called `name` in `folder`; None where `name` is a path rather than a name."""
    is_path = name in ("", ".", "..") or bool(set(name) & set("/\\\0"))
    if is_path or len(name.encode()) >= 200:
        return None
    child = folder / name
    return child if child.is_dir() else None


def _read_encoder(folder: Path, label: str) -> EncoderRun:
    manifest = _read_json(folder / "manifest.json")
    config = _read_json(folder / "config.json")
    result = manifest.get("result") or {}
    data = config.get("data") or {}
    return EncoderRun(
        label=label,
        history=_read_table(folder / "history.tsv"),
        settings=config.get("parameters", {}),
        parameters=int(result.get("parameters") or 0),
        seconds=float(manifest.get("seconds") or "nan"),
        example=_read_arrays(folder / "reconstruction.npz"),
        errors=_read_json(folder / "reconstruction.json"),
        masked_error=float(data.get("masked_error") or "nan"),
        interpretation=_read_interpretation(folder),
    )


def _read_runs(folder: Path) -> pd.DataFrame:
    runs = _read_table(folder / "runs.tsv", dtype=dict.fromkeys(_RUN_COLUMNS, str))
    if runs.empty:
        return runs
    return runs.fillna(dict.fromkeys(_RUN_COLUMNS, ""))[[*_RUN_COLUMNS, "seconds"]]


def _read_json(path: Path) -> dict[str, Any]:
    return dict(read_json(path)) if path.is_file() else {}


def _read_table(path: Path, **options: Any) -> pd.DataFrame:
    return read_tsv(path, **options) if path.is_file() else pd.DataFrame()


def _read_interpretation(folder: Path) -> dict[str, pd.DataFrame]:
    paths = sorted((folder / "interpretation").glob("*.tsv"))
    return {path.stem: read_tsv(path) for path in paths}


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        return {}
    with np.load(path, allow_pickle=False) as stored:
        for member in stored.zip.infolist():
            refuse_bomb(path, path.stat().st_size, member.file_size)
        return {name: stored[name] for name in stored.files}
