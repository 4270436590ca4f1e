"""A folder → Results. One layout is read, whoever wrote it, and nothing outside the folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError, listed, problem
from nerve.cohort import Cohort
from nerve.evaluation.results import PROTOCOL, is_results, read_results
from nerve.files import read_json, read_tsv
from nerve.parcellation import Parcellation, load_parcellation, parcellation_names
from nerve.quality.likeness import Likeness
from nerve.report.privacy import Scrubber
from nerve.report.results import CohortFacts, EncoderRun, Results, cohort_facts
from nerve.report.words import methods_text, run_text, site_notices
from nerve.unpacking import refuse_bomb

CHECKS = "quality.tsv"  # what `nerve check` says of the cohort, where it was asked
LEAST = 10  # participants of whom a mean is shown: the mean of one is that participant
_TEXT = dict.fromkeys(("id", "kind", "line", "cohort", "target", "run", "status", "reason"), str)


def load_results(folder: str | os.PathLike[str], cohorts: Mapping[str, Cohort] | None = None) -> Results:
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
        raise problem(folder, "there is no such folder", expected="what nerve experiment, evaluate or pretrain wrote")
    _refuse_links(folder)
    if is_results(folder):
        return _evaluated(folder, dict(cohorts or {}))
    if (folder / "history.tsv").is_file():
        return _pretrained(folder, dict(cohorts or {}))
    raise problem(
        folder,
        f"there is no {PROTOCOL}",
        expected="a finished evaluation or a training run",
        remedy="Run nerve experiment or nerve evaluate again, with this version: what is done is not repeated.",
    )


def load_tables(folder: str | os.PathLike[str]) -> Results:
    """The tables of a results folder, without what its runs and cohorts have to add."""
    return Results.of(read_results(folder), runs=_runs(Path(folder)))


def _runs(folder: Path) -> pd.DataFrame:
    runs = _table(folder / "runs.tsv", dtype=_TEXT)
    return runs.assign(**{name: runs[name].fillna("") for name in _TEXT if name in runs})


def _evaluated(folder: Path, cohorts: dict[str, Cohort]) -> Results:
    found, runs = read_results(folder), _runs(folder)
    results = Results.of(found, runs=runs)
    cohorts = {_place(name, cohort, found.cohorts): cohort for name, cohort in cohorts.items()}
    stored = {name: path for name in results.cohorts if (path := _child(folder / "cohorts", name)) is not None}
    opened = {name: Cohort.load(path) for name, path in stored.items() if (path / "cohort.json").is_file()} | cohorts
    facts = {name: cohort_facts(opened[name], one) if name in opened else one for name, one in results.cohorts.items()}
    facts = {name: replace(one, mean=one.mean if one.n_in_mean >= LEAST else None) for name, one in facts.items()}
    encoders, models, warnings = [], {}, []
    likeness: dict[tuple[str, str], Likeness] = {}
    for row in runs.itertuples():
        path = _child(folder / "runs", str(row.id))
        if path is None:
            continue
        warnings += _json(path / "manifest.json").get("warnings", [])
        if row.kind == "encode" and row.line not in results.null_lines:
            encoders.append(_encoder(path, str(row.run).removeprefix("encode ").strip()))
        if (path / "model" / "config.json").is_file():  # a trained model, which it describes
            models[str(row.line)] = path / "model"  # of several cohorts one will do
            like = Likeness.load(path / "model")
            likeness |= {} if like is None else {(results.label(str(row.line)), str(row.cohort)): like}
    encoders += [_encoder(path, results.label(line)) for line, path in models.items()]
    results = replace(
        results,
        cohorts=facts,
        encoders=encoders,
        likeness=likeness,
        checks=_table(folder / CHECKS, dtype=str),
        interpretation=_interpretation(folder),
        parcellation=_named(found.about.get("parcellation")),
        warnings=warnings,
        notices=site_notices(results),
    )
    participants = [table["participant"] for table in (found.folds, found.predictions) if "participant" in table]
    return _anonymous(replace(results, methods_text=methods_text(results)), participants, opened)


def _pretrained(folder: Path, cohorts: dict[str, Cohort]) -> Results:
    config = _json(folder / "config.json")
    unfinished = "The run is not finished: it has no config.json. What it has written so far is shown."
    data, method = config.get("data") or {}, str(config.get("method", "an encoder"))
    versions = {"nerve-fc": config.get("nerve_version"), "torch": config.get("torch_version")}
    about = {
        "kind": "run",
        "method": method.lower(),
        "command": "nerve pretrain COHORT --out DIR",
        "parcellation": (config.get("parcellation") or {}).get("name", ""),
        "versions": {name: version for name, version in versions.items() if version},
        "seeds": [config["parameters"].get("seed", 0)] if config else [],
        "data": {"training": data["fingerprint"]} if data.get("fingerprint") else {},
    }
    results = Results(
        title=f"Pretraining of {method}",
        about=about,
        cohorts={name: cohort_facts(cohort) for name, cohort in cohorts.items()},
        encoders=[_encoder(folder, folder.name)],
        parcellation=_regions(config["parcellation"]) if config else None,
        methods_text=run_text(config) if config else [],
        notices=[] if config else [unfinished],
    )
    return _anonymous(results, [], cohorts)


def _place(name: str, cohort: Cohort, table: pd.DataFrame) -> str:
    """What the results call a cohort, known by its name or else by its fingerprint."""
    known = dict(zip(table["fingerprint"], table["cohort"], strict=True))
    if name in set(table["cohort"]):
        return name
    if cohort.fingerprint in known:
        return str(known[cohort.fingerprint])
    raise problem("--cohort", f"{name!r} was not evaluated here", expected=f"one of {listed(table['cohort'])}")


def _encoder(folder: Path, label: str) -> EncoderRun:
    config, manifest = _json(folder / "config.json"), _json(folder / "manifest.json")
    errors, result = _json(folder / "reconstruction.json"), manifest.get("result") or {}
    return EncoderRun(
        label=label,
        history=_table(folder / "history.tsv"),
        settings=(config.get("parameters") or {}).get("options", {}),
        parameters=int(result.get("parameters") or 0),
        seconds=float(manifest.get("seconds") or "nan"),
        example=_arrays(folder / "reconstruction.npz"),
        networks=errors.get("networks", ()),
        errors=errors,
        interpretation=_interpretation(folder),
    )


def _anonymous(results: Results, participants: list[pd.Series], cohorts: Mapping[str, Cohort]) -> Results:
    """Every sentence without ids and paths."""
    ids = {str(one) for column in participants for one in column.unique()}
    for cohort in cohorts.values():
        ids |= {*cohort.participants["participant_id"].astype(str), *cohort.exclusions["participant_id"].astype(str)}
    scrub = Scrubber(ids).clean
    texts = {name: list(dict.fromkeys(map(scrub, getattr(results, name)))) for name in ("methods_text", "warnings")}
    runs = results.runs
    if len(runs):
        runs = runs.assign(reason=[scrub(reason) for reason in runs["reason"].fillna("")])
    about = dict(results.about) | {"command": scrub(results.about.get("command", ""))}
    facts = {name: _without_ids(one, scrub) for name, one in results.cohorts.items()}
    checks = results.checks.fillna("").map(scrub)
    return replace(results, runs=runs, cohorts=facts, about=about, checks=checks, **texts)  # type: ignore[arg-type]


def _without_ids(facts: CohortFacts, scrub: Callable[[object], str]) -> CohortFacts:
    """Reasons for leaving participants out, counted again once they name nobody."""
    reasons = facts.left_out.assign(reason=[scrub(reason) for reason in facts.left_out["reason"]])
    return replace(facts, left_out=reasons.groupby("reason", sort=False)[["participants"]].sum().reset_index())


# ---- files


def _refuse_links(folder: Path) -> None:
    """A folder that a stranger packed may hold links to anything on this machine."""
    inside = folder.resolve()
    for place, folders, names in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *names)):
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                raise problem(
                    path,
                    "it is a link out of the folder, and nothing outside it is read",
                    remedy="Put the file itself there; a cohort elsewhere is named with --cohort.",
                )


def _child(folder: Path, name: str) -> Path | None:
    """The folder called `name` in `folder`; None for whatever is a path rather than a name."""
    named = name not in ("", ".", "..") and not set(name) & set("/\\\0") and len(name.encode()) < 200
    return folder / name if named and (folder / name).is_dir() else None


def _json(path: Path) -> dict[str, Any]:
    content = read_json(path) if path.is_file() else {}
    if not isinstance(content, dict):
        raise problem(path, "it holds no settings")
    return content


def _table(path: Path, **options: Any) -> pd.DataFrame:
    return read_tsv(path, **options) if path.is_file() else pd.DataFrame()


def _interpretation(folder: Path) -> dict[str, pd.DataFrame]:
    return {path.stem: read_tsv(path) for path in sorted((folder / "interpretation").glob("*.tsv"))}


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        return {}
    try:
        with np.load(path, allow_pickle=False) as stored:
            for member in stored.zip.infolist():
                refuse_bomb(path, path.stat().st_size, member.file_size)
            return {name: stored[name] for name in stored.files}
    except NerveError:
        raise
    except Exception as error:  # zipfile, zlib, struct and numpy each have errors of their own
        raise problem(path, f"it is not an archive of arrays ({error})") from error


def _named(name: Any) -> Parcellation | None:
    """A parcellation that this package ships; a path is never followed."""
    known = str(name).removesuffix("+aseg19") in parcellation_names()
    return load_parcellation(str(name)) if known else None


def _regions(about: Mapping[str, Any]) -> Parcellation:
    return Parcellation.from_table(pd.DataFrame(about["regions"]), name=str(about.get("name", "custom")))
