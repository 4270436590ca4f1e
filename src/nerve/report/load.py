"""A folder → `ReportData`. One layout is read, whoever wrote it, and nothing outside the folder."""

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
from nerve.data.parcellation import Parcellation, load_parcellation, parcellation_names
from nerve.data.quality.likeness import FEWEST, Likeness
from nerve.evaluation.results import AGAIN, PROTOCOL, Results, is_results
from nerve.report.report_data import CohortFacts, EncoderRun, ReportData, cohort_facts, ids_of
from nerve.report.words import learning_notices, methods_text, run_text, site_notices

CHECKS = "quality.tsv"  # what `nerve check` says of the cohort, where it was asked
_TEXT = dict.fromkeys(("id", "kind", "line", "cohort", "target", "run", "status", "reason"), str)


def load_results(
    folder: str | os.PathLike[str], cohorts: Mapping[str, Cohort] | None = None
) -> ReportData:
    """Read what `nerve experiment`, `nerve evaluate` or `nerve pretrain` wrote.

    Parameters
    ----------
    folder : path
    cohorts : mapping, optional
        Cohorts by name, to add what only they know: who took part, mean FC. Without them those in `folder`/cohorts
        are used; no other file is opened.
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
        return (_evaluated if is_results(folder) else _pretrained)(folder, dict(cohorts or {}))
    except NerveError:
        raise
    except Exception as fault:  # a stranger's files may hold anything, in any place
        said = f"its files do not hold what nerve writes there ({type(fault).__name__}: {fault})"
        raise problem(folder, said, remedy=AGAIN) from fault


def by_name(folder: str | os.PathLike[str], cohorts: Sequence[Cohort]) -> dict[str, Cohort]:
    """Cohorts by the names that results have for them: a cohort is known by its content.

    Parameters
    ----------
    folder : path
        What `nerve experiment`, `nerve evaluate` or `nerve pretrain` wrote.
    cohorts : sequence of Cohort
        As they lie on disk. One that was changed since, or not evaluated there, is refused.
    """
    if not is_results(folder):  # a training run, which knows the FC that it was trained on
        _check_trained_on(Path(folder), cohorts)
        return {cohort.name: cohort for cohort in cohorts}
    table = Results.load(folder).cohorts
    names = dict(zip(table["fingerprint"], table["cohort"], strict=True))
    found = {}
    for cohort in cohorts:
        if cohort.fingerprint not in names:
            what = f"{cohort.name!r} is not what was evaluated here, or was changed since"
            raise problem(
                "--cohort", what, expected=f"one of {listed(table['cohort'])}", remedy=AGAIN
            )
        found[str(names[cohort.fingerprint])] = cohort
    return found


def _check_trained_on(folder: Path, cohorts: Sequence[Cohort]) -> None:
    """Refuse a cohort that a training run did not see, whatever its name is."""
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


def load_tables(folder: str | os.PathLike[str]) -> ReportData:
    """The tables of a results folder, without what its runs and cohorts have to add."""
    return ReportData.of(Results.load(folder), runs=_runs(Path(folder)))


def _evaluated(folder: Path, cohorts: dict[str, Cohort]) -> ReportData:
    found, runs = Results.load(folder), _runs(folder)
    results = ReportData.of(found, runs=runs)
    stored = {
        name: path
        for name in results.cohorts
        if (path := _child(folder / "cohorts", name)) is not None
    }
    opened = {
        name: Cohort.load(path) for name, path in stored.items() if (path / "cohort.json").is_file()
    }
    opened |= {_known(name, found.cohorts): cohort for name, cohort in cohorts.items()}
    facts = {
        name: cohort_facts(opened[name], one) if name in opened else one
        for name, one in results.cohorts.items()
    }
    encoders = []
    models: dict[str, Path] = {}  # line → a trained model that was given, described
    warnings = list(found.about.get("warnings", []))
    likeness: dict[tuple[str, str], Likeness] = {}
    for row in runs.itertuples():  # of an experiment
        path = _child(folder / "runs", str(row.id))
        if path is None:
            continue
        warnings += _json(path / "manifest.json").get("warnings", [])
        if row.kind == "encode" and row.line not in results.null_lines:
            several = found.rows.loc[found.rows["line"] == row.line, "seed"].nunique() > 1
            seed = re.search(r" · seed \d+$", str(row.run)) if several else None
            encoders.append(
                _encoder(path, results.label(str(row.line)) + (seed[0] if seed else ""))
            )
        if (path / "model" / "config.json").is_file():  # a trained model, which it describes
            models[str(row.line)] = path / "model"  # of several cohorts one will do
            if like := Likeness.load(path / "model"):
                likeness[results.label(str(row.line)), str(row.cohort)] = like
    for number, line in enumerate(found.rows["line"]):  # of an evaluation
        path = _child(folder / "models", str(number))
        if path is None or not (path / "config.json").is_file():
            continue
        models[str(line)] = path
        for place, cohort in enumerate(found.cohorts["cohort"]):
            like_folder = _child(path / "likeness", str(place))
            like = None if like_folder is None else Likeness.load(like_folder)
            if like is not None:
                likeness[results.label(str(line)), str(cohort)] = like
    name = str(found.about.get("parcellation"))
    shipped = name.removesuffix("+aseg19") in parcellation_names()  # a path is never followed
    encoders += [_encoder(path, results.label(line)) for line, path in models.items()]
    results = replace(
        results,
        cohorts=facts,
        encoders=encoders,
        likeness=likeness,
        checks=_table(folder / CHECKS, dtype=str),
        interpretation=_interpretation(folder),
        parcellation=load_parcellation(name) if shipped else None,
        warnings=warnings,
        notices=[*site_notices(results), *learning_notices(encoders)],
    )
    named = found.folds, found.predictions
    ids = {str(one) for table in named for one in table.get("participant", pd.Series()).unique()}
    return _anonymous(replace(results, methods_text=methods_text(results)), ids, opened)


def _pretrained(folder: Path, cohorts: dict[str, Cohort]) -> ReportData:
    config = _json(folder / "config.json")
    method, regions = str(config.get("method", "an encoder")), config.get("parcellation", {})
    about = {
        "kind": "run",
        "method": method.lower(),
        "command": "nerve pretrain COHORT --out DIR",
        "parcellation": regions.get("name", ""),
        "versions": {"nerve-fc": config.get("nerve_version"), "torch": config.get("torch_version")},
        "seeds": [config["parameters"].get("seed", 0)] if config else [],
        "data": {"training": config.get("data", {}).get("fingerprint")},
    }
    unfinished = (
        "The run is not finished: it has no config.json. What it has written so far is shown."
    )
    known = (
        Parcellation.from_table(pd.DataFrame(regions["regions"]), name=str(regions["name"]))
        if regions
        else None
    )
    encoder = _encoder(folder, printable_name(folder.name))
    doubts = [encoder.doubt] if encoder.doubt else []
    results = ReportData(
        title=f"Pretraining of {method}",
        about=about,
        cohorts={name: cohort_facts(cohort) for name, cohort in cohorts.items()},
        encoders=[encoder],
        parcellation=known,
        methods_text=[run_text(config)] if config else [],
        notices=doubts if config else [unfinished],
    )
    return _anonymous(results, set(), cohorts)


def _known(name: str, table: pd.DataFrame) -> str:
    """What the results call a cohort; one that they do not know is refused."""
    for called in (name, name_in_results(name)):
        if called in set(table["cohort"]):
            return called
    raise problem(
        "--cohort", f"{name!r} was not evaluated here", expected=f"one of {listed(table['cohort'])}"
    )


def _encoder(folder: Path, label: str) -> EncoderRun:
    manifest, config = _json(folder / "manifest.json"), _json(folder / "config.json")
    return EncoderRun(
        label=label,
        history=_table(folder / "history.tsv"),
        settings=config.get("parameters", {}),
        parameters=int((manifest.get("result") or {}).get("parameters") or 0),
        seconds=float(manifest.get("seconds") or "nan"),
        example=_arrays(folder / "reconstruction.npz"),
        errors=_json(folder / "reconstruction.json"),
        masked_error=float((config.get("data") or {}).get("masked_error") or "nan"),
        interpretation=_interpretation(folder),
    )


def _anonymous(results: ReportData, ids: set[str], cohorts: Mapping[str, Cohort]) -> ReportData:
    """Every sentence without ids and paths, and no mean over few participants."""
    scrub = Identifiers(ids.union(*map(ids_of, cohorts.values()))).removed_from
    runs = (
        results.runs.assign(reason=results.runs["reason"].map(scrub))
        if len(results.runs)
        else results.runs
    )
    return replace(
        results,
        runs=runs,
        cohorts={name: _without_ids(one, scrub) for name, one in results.cohorts.items()},
        about={**results.about, "command": scrub(results.about.get("command", ""))},
        checks=results.checks.fillna("").map(scrub),
        methods_text=list(dict.fromkeys(map(scrub, results.methods_text))),
        warnings=list(dict.fromkeys(map(scrub, results.warnings))),
    )


def _without_ids(facts: CohortFacts, scrub: Callable[[object], str]) -> CohortFacts:
    """No mean of few; reasons for leaving participants out, counted again once they name nobody."""
    reasons = facts.left_out.assign(reason=facts.left_out["reason"].map(scrub))
    counted = reasons.groupby("reason", sort=False)[["participants"]].sum().reset_index()
    return replace(facts, left_out=counted, mean=facts.mean if facts.n_in_mean >= FEWEST else None)


# ---- files


def _refuse_links(folder: Path) -> None:
    """A folder that a stranger packed may hold links to anything on this machine."""
    inside = folder.resolve()
    for path in folder.rglob("*"):
        if path.is_symlink() and not path.resolve().is_relative_to(inside):
            remedy = "Put the file itself there; a cohort elsewhere is named with --cohort."
            raise problem(
                path,
                "it is a link out of the folder, and nothing outside it is read",
                remedy=remedy,
            )


def _child(folder: Path, name: str) -> Path | None:
    """The folder called `name` in `folder`; None for whatever is a path rather than a name."""
    named = (
        name not in ("", ".", "..") and not set(name) & set("/\\\0") and len(name.encode()) < 200
    )
    return folder / name if named and (folder / name).is_dir() else None


def _runs(folder: Path) -> pd.DataFrame:
    runs = _table(folder / "runs.tsv", dtype=_TEXT).fillna(dict.fromkeys(_TEXT, ""))
    return runs[[*_TEXT, "seconds"]] if len(runs) else runs


def _json(path: Path) -> dict[str, Any]:
    return dict(read_json(path)) if path.is_file() else {}


def _table(path: Path, **options: Any) -> pd.DataFrame:
    return read_tsv(path, **options) if path.is_file() else pd.DataFrame()


def _interpretation(folder: Path) -> dict[str, pd.DataFrame]:
    return {path.stem: read_tsv(path) for path in sorted((folder / "interpretation").glob("*.tsv"))}


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        return {}
    with np.load(path, allow_pickle=False) as stored:
        for member in stored.zip.infolist():
            refuse_bomb(path, path.stat().st_size, member.file_size)
        return {name: stored[name] for name in stored.files}
