"""A folder → Results. What is missing or damaged becomes a sentence on the page, never the end of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError
from nerve.cohort import Cohort
from nerve.files import read_json, read_tsv, read_yaml
from nerve.parcellation import Parcellation, load_parcellation
from nerve.report.privacy import Scrubber
from nerve.report.results import CohortFacts, EncoderRun, Results, cohort_facts
from nerve.report.words import evaluation_words, experiment_words, run_words
from nerve.unpacking import refuse_bomb

TEXT = dict.fromkeys(("cohort", "target", "method", "variant", "method_a", "variant_a", "method_b"), str)
TEXT |= {"variant_b": str, "participant": str, "participant_id": str, "run": str, "reason": str, "status": str}
TEXT |= {"metric": str, "pretrain_scope": str}
FLAGS = ("tie", "best_two")
OF_NUMBERS = ("scores.tsv", "null_scores.tsv", "predictions.tsv", "comparisons.tsv", "history.tsv")  # but for the above
MOST_COLUMNS = 100  # of a table of results: ours have some thirty
SCORED = frozenset(("cohort", "target", "method"))
COMPARED = frozenset(("cohort", "target", "method_a", "variant_a", "method_b", "variant_b", "metric", "difference"))
COMPARED |= {"difference_low", "difference_high", "p", "q", "best_two"}
NEEDED = {"scores.tsv": SCORED, "null_scores.tsv": SCORED, "predictions.tsv": SCORED, "comparisons.tsv": COMPARED}
PERMUTED = "Permutation"  # the row of models with permuted networks


def load_results(folder: str | os.PathLike[str], cohorts: Mapping[str, Cohort] | None = None) -> Results:
    """Read what `nerve experiment`, `nerve evaluate` or `nerve pretrain` wrote, complete or not.

    Parameters
    ----------
    folder : path
    cohorts : mapping, optional
        Cohorts by name, for a folder that does not say where they are.
    """
    return _Folder(Path(folder), dict(cohorts or {})).results()


class _Folder:
    """Reads one folder and collects what went wrong on the way."""

    def __init__(self, folder: Path, cohorts: dict[str, Cohort]) -> None:
        if not folder.is_dir():
            raise NerveError(f"{folder}: there is no such folder, expected what nerve experiment or evaluate wrote.")
        self.folder, self.cohorts = folder, cohorts
        self.problems: list[str] = []
        self.ids: set[str] = set()

    def results(self) -> Results:
        if (self.folder / "experiment.yaml").is_file():
            found = self._experiment()
        elif (self.folder / "settings.json").is_file() or (self.folder / "scores.tsv").is_file():
            found = self._evaluation()
        elif any((self.folder / name).is_file() for name in ("config.json", "history.tsv", "config.yaml")):
            found = self._run()
        else:
            raise NerveError(
                f"{self.folder}: there is nothing to report, expected the folder of `nerve experiment`, "
                "`nerve evaluate` or `nerve pretrain`."
            )
        return self._anonymous(found)

    # ---- the three kinds of folder

    def _experiment(self) -> dict[str, Any]:
        config = self._experiment_settings()
        runs = self.table("runs.tsv")
        manifests = self._manifests()
        opened = self._opened(config)
        cohorts = {name: self._facts(name, cohort, config) for name, cohort in opened.items()}
        tables = self._tables()
        facts: dict[str, Any] = {"fingerprints": self.json("inputs.json")}
        facts |= {"versions": next((m["versions"] for m in manifests if m.get("versions")), {})}
        facts |= {"seeds": config.get("seeds", []), "adapted": _adapted(manifests)}
        return tables | {
            "title": str(config.get("title") or config.get("name") or "Experiment"),
            "kind": "experiment",
            "parcellation": self._named(config.get("parcellation")) if not cohorts else None,
            "runs": runs,
            "config": config,
            "cohorts": {name: facts for name, facts in cohorts.items() if facts is not None},
            "encoders": self._encoders(manifests),
            "nulls": self._run_nulls(tables["scores"], manifests),
            "methods_text": self.tried(lambda: experiment_words(config, opened), []),
            "warnings": [said for m in manifests for said in m.get("warnings", [])],
            "facts": facts,
        }

    def _experiment_settings(self) -> dict[str, Any]:
        """experiment.yaml without what no experiment has there."""
        config = self.tried(lambda: read_yaml(self.folder / "experiment.yaml"), {})
        kinds = {"cohorts": dict, "protocol": dict, "methods": list, "seeds": list}
        wrong = [name for name, kind in kinds.items() if not isinstance(config.get(name) or kind(), kind)]
        config = {str(name): value for name, value in config.items() if name not in wrong}
        cohorts, methods = config.get("cohorts") or {}, config.get("methods") or []
        good = {str(n): a for n, a in cohorts.items() if isinstance(a, dict) and isinstance(a.get("targets"), list)}
        rows = [row for row in methods if isinstance(row, dict) and isinstance(row.get("method"), str)]
        wrong += [name for name, kept, all_ in (("cohorts", good, cohorts), ("methods", rows, methods)) if kept != all_]
        if wrong:
            self.problems.append(f"experiment.yaml: {', '.join(wrong)} is not as an experiment has it, and left out.")
        return config | {"cohorts": good, "methods": rows}

    def _evaluation(self) -> dict[str, Any]:
        settings = self.json("settings.json")
        tables = self._tables()
        about = _inside(settings, "cohort")
        self.cohorts = self.cohorts or self._recorded_cohort(about)
        cohorts = {name: self._facts(name, cohort, {}) for name, cohort in self.cohorts.items()}
        name = str(about.get("name", "cohort"))
        if not cohorts and about:
            n = self.tried(lambda: int(about.get("n_participants", 0)), 0)
            mark = str(about.get("fingerprint", ""))
            cohorts = {name: CohortFacts(name, name, n, pd.DataFrame(), fingerprint=mark)}
        protocol = self.folder / "protocol.md"
        return tables | {
            "title": f"Evaluation of {name}",
            "kind": "evaluation",
            "config": {"settings": _inside(settings, "settings"), "features": _features(settings)},
            "cohorts": {name: facts for name, facts in cohorts.items() if facts is not None},
            "nulls": self._part_nulls(settings, tables["scores"]),
            "methods_text": evaluation_words(protocol.read_text("utf-8", "replace")) if protocol.is_file() else [],
            "facts": {
                "versions": _inside(settings, "versions"),
                "seeds": [_inside(settings, "settings").get("seed")],
                "fingerprints": {"cohorts": {name: about.get("fingerprint", "")}},
            },
        }

    def _recorded_cohort(self, about: Mapping[str, Any]) -> dict[str, Cohort]:
        """The cohort that was evaluated, if it is still where it was and still the same."""
        path = Path(str(self.json("inputs.json").get("cohort", "")))
        if not (path / "cohort.json").is_file():
            return {}
        cohort = self.tried(lambda: Cohort.load(path), None)
        same = cohort is not None and cohort.fingerprint == about.get("fingerprint")
        return {cohort.name: cohort} if cohort is not None and same else {}

    def _run(self) -> dict[str, Any]:
        encoder = self._encoder(self.folder, {"label": "encode " + self.folder.name})
        config = self.json("config.json")
        if not config:
            self.problems.append("The run is not finished: it has no config.json. What it has written so far is shown.")
        versions = {"nerve-fc": config.get("nerve_version"), "torch": config.get("torch_version")}
        return {
            "title": f"Pretraining of {config.get('method', 'an encoder')}",
            "kind": "run",
            "config": {},
            "parcellation": self.tried(lambda: _regions(config), None) if config else None,
            "encoders": [encoder],
            "cohorts": {n: f for n, c in self.cohorts.items() if (f := self._facts(n, c, {})) is not None},
            "methods_text": self.tried(lambda: run_words(config), []),
            "facts": {
                "versions": {name: value for name, value in versions.items() if value},
                "seeds": [_inside(config, "parameters").get("seed")],
                "fingerprints": {"data": _inside(config, "data").get("fingerprint", "")},
            },
        }

    # ---- parts

    def _named(self, name: object) -> Parcellation | None:
        return self.tried(lambda: load_parcellation(str(name)), None) if name else None

    def _tables(self) -> dict[str, pd.DataFrame]:
        names = ("predictions", "scores", "comparisons", "null_scores")
        tables = {name: self.table(f"{name}.tsv") for name in names}
        for frame in (self.table("folds.tsv"), tables["predictions"]):
            for column in ("participant_id", "participant"):
                if column in frame.columns:
                    self.ids |= set(frame[column].dropna().astype(str))
        tables["predictions"] = tables["predictions"].drop(columns="participant", errors="ignore")
        tables["interpretation"] = self._interpretation(self.folder)  # type: ignore[assignment]
        return tables

    def table(self, name: str, folder: Path | None = None) -> pd.DataFrame:
        """A table of the folder; empty, with a sentence on the page if it is damaged, where it cannot be read."""
        path = (folder or self.folder) / name
        if not path.is_file():
            return pd.DataFrame()
        frame = self.tried(lambda: read_tsv(path, dtype=TEXT), pd.DataFrame())
        if frame.shape[1] > MOST_COLUMNS:
            self.problems.append(f"{name}: it has {frame.shape[1]:,} columns; the first {MOST_COLUMNS} are shown.")
            frame = frame.iloc[:, :MOST_COLUMNS].copy()
        for column in frame.columns:
            if column in TEXT:
                frame[column] = frame[column].fillna("")
            elif column in FLAGS:
                frame[column] = frame[column].astype(str) == "True"
            elif name in OF_NUMBERS:
                numbers = _numbers(frame[column])
                if (lost := int((numbers.isna() & frame[column].notna()).sum())) > 0:
                    self.problems.append(f"{name}: {lost} of {column} are no numbers, and shown as missing.")
                frame[column] = numbers
        if name not in NEEDED or frame.empty:
            return frame
        if lacking := NEEDED[name] - set(frame.columns):
            self.problems.append(f"{name}: there is no column {', '.join(sorted(lacking))}; it is not shown.")
            return pd.DataFrame()
        return frame if name == "comparisons.tsv" else frame.assign(variant=frame.get("variant", ""))

    def json(self, name: str, folder: Path | None = None) -> dict[str, Any]:
        """A JSON file of settings; empty where there is none."""
        path = (folder or self.folder) / name
        content = self.tried(lambda: read_json(path), {}) if path.is_file() else {}
        return content if isinstance(content, dict) else {}

    def tried(self, read: Callable[[], Any], otherwise: Any) -> Any:
        """What `read` gives, or `otherwise` and a sentence on the page."""
        try:
            return read()
        except (NerveError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self.problems.append(str(error) or type(error).__name__)
            return otherwise

    def _opened(self, config: Mapping[str, Any]) -> dict[str, Cohort]:
        opened: dict[str, Cohort] = {}
        for name, about in (config.get("cohorts") or {}).items():
            cohort = self.cohorts.get(name) or self.tried(partial(self._cohort, name, about, config), None)
            if cohort is not None:
                opened[str(name)] = cohort
        return opened

    def _cohort(self, name: str, about: Mapping[str, Any], config: Mapping[str, Any]) -> Cohort:
        path = about.get("path")
        cohort = Cohort.load(self.folder / "cohorts" / name if path is None else path)
        cohort = cohort.align(config.get("parcellation", cohort.parcellation))
        cohort.name = name
        renamed = {theirs: ours for ours, theirs in (about.get("columns") or {}).items()}
        cohort.participants = cohort.participants.rename(columns=renamed)
        return cohort

    def _facts(self, name: str, cohort: Cohort, config: Mapping[str, Any]) -> CohortFacts | None:
        about = (config.get("cohorts") or {}).get(name, {})
        self.ids |= set(cohort.participants["participant_id"]) | set(cohort.exclusions["participant_id"].astype(str))
        return self.tried(lambda: cohort_facts(cohort, about.get("label") or name, about.get("pretrain", True)), None)

    def _manifests(self) -> list[dict[str, Any]]:
        paths = sorted((self.folder / "runs").glob("*/manifest.json"))
        read = [self.tried(partial(read_json, path), None) for path in paths]
        return [m | {"id": p.parent.name} for m, p in zip(read, paths, strict=True) if isinstance(m, dict)]

    def _encoders(self, manifests: list[dict[str, Any]]) -> list[EncoderRun]:
        found = [self._encoder(self.folder / "runs" / m["id"], m) for m in manifests if _is_encoder(m)]
        return sorted(found, key=lambda one: one.label)

    def _encoder(self, folder: Path, manifest: Mapping[str, Any]) -> EncoderRun:
        config, about = self.json("config.json", folder), self.json("reconstruction.json", folder)
        result = _inside(manifest, "result")
        example = folder / "reconstruction.npz"
        return EncoderRun(
            label=str(manifest.get("label", folder.name)).removeprefix("encode "),
            history=self.table("history.tsv", folder),
            settings=_inside(_inside(config, "parameters"), "options"),
            parameters=self.tried(lambda: int(result.get("parameters") or 0), 0),
            seconds=self.tried(lambda: float(manifest.get("seconds") or "nan"), np.nan),
            example=self.tried(lambda: _arrays(example), {}) if example.is_file() else {},
            networks=about.get("networks", ()),
            errors=about,
            interpretation=self._interpretation(folder),
        )

    def _interpretation(self, folder: Path) -> dict[str, pd.DataFrame]:
        paths = sorted((folder / "interpretation").glob("*.tsv"))
        return {path.stem: self.tried(partial(read_tsv, path), pd.DataFrame()) for path in paths}

    def _run_nulls(self, scores: pd.DataFrame, manifests: list[dict[str, Any]]) -> pd.DataFrame:
        """The permutation nulls that runs kept, found by what a run of each score would be called."""
        run_of = {m.get("label"): self.folder / "runs" / m["id"] for m in manifests}
        parts = []
        keys = [k for k in ("cohort", "method", "variant", "seed") if k in scores.columns]
        for row in scores[keys].drop_duplicates().to_dict("records") if len(keys) == 4 else []:
            seed = f"seed {row['seed']:.0f}" if row["seed"] else ""
            words = [row["method"], row["variant"], seed, row["cohort"]]
            folder = run_of.get("probe " + " · ".join(word for word in words if word))
            if folder is not None and (folder / "null.tsv").is_file():
                null = self.tried(partial(read_tsv, folder / "null.tsv"), pd.DataFrame())
                parts.append(_long(null).assign(**{str(key): value for key, value in row.items()}))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def _part_nulls(self, settings: Mapping[str, Any], scores: pd.DataFrame) -> pd.DataFrame:
        parts = []
        cohort = str(_inside(settings, "cohort").get("name", "cohort"))
        for one in _features(settings):
            stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", str(one["name"]))[:60]
            for path in sorted((self.folder / "parts").glob(f"{stem}-*-null*.tsv"))[-1:]:
                null = self.tried(partial(read_tsv, path), pd.DataFrame())
                parts.append(_long(null).assign(cohort=cohort, method=str(one["name"]), variant="", seed=0))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def _anonymous(self, found: dict[str, Any]) -> Results:
        """Every sentence without ids and paths."""
        scrub = Scrubber(self.ids).clean
        runs = found.get("runs", pd.DataFrame())
        if "reason" in runs.columns:
            found["runs"] = runs.assign(reason=[scrub(reason) for reason in runs["reason"]])
        for name in ("methods_text", "warnings"):
            found[name] = list(dict.fromkeys(scrub(text) for text in found.get(name, [])))
        found["cohorts"] = {name: _without_ids(facts, scrub) for name, facts in found.get("cohorts", {}).items()}
        return Results(**found, problems=list(dict.fromkeys(scrub(text) for text in self.problems)))


def _inside(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A part of some settings, empty if it is not there or no mapping."""
    part = content.get(name)
    return part if isinstance(part, dict) else {}


def _features(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The feature sets of an evaluation."""
    sets = settings.get("features")
    return [one for one in sets if isinstance(one, dict) and "name" in one] if isinstance(sets, list) else []


def _adapted(manifests: list[dict[str, Any]]) -> dict[str, str]:
    """What a run is called → the substitute that its method had to make."""
    found = {str(m.get("label")): _inside(m, "result").get("adapted", "") for m in manifests}
    return {label: how for label, how in found.items() if how}


def _without_ids(facts: CohortFacts, scrub: Callable[[object], str]) -> CohortFacts:
    """Reasons for leaving people out, counted again once they name nobody."""
    reasons = facts.left_out.assign(reason=[scrub(reason) for reason in facts.left_out["reason"]])
    return replace(facts, left_out=reasons.groupby("reason", sort=False)[["people"]].sum().reset_index())


def _regions(config: Mapping[str, Any]) -> Parcellation:
    about = config["parcellation"]
    return Parcellation.from_table(pd.DataFrame(about["regions"]), name=str(about.get("name", "custom")))


def _is_encoder(manifest: Mapping[str, Any]) -> bool:
    return manifest.get("kind") == "encode" and not str(manifest.get("label", "")).startswith(f"encode {PERMUTED}")


def _numbers(column: pd.Series) -> pd.Series:
    """What is no number is missing; so are integers of hundreds of digits, which pandas keeps as objects."""
    return column if pd.api.types.is_numeric_dtype(column) else pd.to_numeric(column.astype(str), errors="coerce")


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            for member in stored.zip.infolist():
                refuse_bomb(path, path.stat().st_size, member.file_size)
            return {name: stored[name] for name in stored.files}
    except NerveError:
        raise
    except Exception as error:  # a damaged archive: zipfile, zlib, struct and numpy each have errors of their own
        raise NerveError(f"{path}: is no archive of arrays ({error}).") from error


def _long(null: pd.DataFrame) -> pd.DataFrame:
    return null.melt(var_name="target", value_name="r") if len(null) else pd.DataFrame({"target": [], "r": []})
