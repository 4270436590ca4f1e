"""Write the results folder from the runs that are done: tables, protocol and maps."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from nerve._utils.errors import NerveError
from nerve._utils.files import read_json, write_json, write_markdown, write_tsv
from nerve._utils.privacy import printable_table, shared_command
from nerve.evaluation.evaluate import EvaluatedCohort, combine
from nerve.evaluation.protocol import FIELDS
from nerve.evaluation.protocol_text import protocol_text, rows_on
from nerve.evaluation.results import Results
from nerve.evaluation.rows import NULL
from nerve.experiments.method_rows import citations_of
from nerve.experiments.run_key import fingerprint, package_versions
from nerve.experiments.run_store import DONE
from nerve.experiments.tasks import EncoderTask, PredictionFromSavedModel, load_evaluation
from nerve.interpret import interpret_to
from nerve.interpret.output import FOLDER as INTERPRETATION
from nerve.interpret.output import INPUTS as INTERPRETED
from nerve.methods import METHODS
from nerve.methods.nerve import NERVE
from nerve.report.table_formats import write_tables

if TYPE_CHECKING:
    from nerve.experiments.experiment import Experiment

_RUN_COLUMNS = ["id", "kind", "line", "cohort", "target", "run", "status", "seconds", "reason"]

# A command that is written into results shows the values of these options: they are neither paths
# nor values of columns.
_PROTOCOL_OPTIONS = {
    f"--{name.replace('_', '-')}" for name, field in FIELDS.items() if field.type != "bool"
}
_SHOWN_OPTIONS = _PROTOCOL_OPTIONS - {"--combat-on"} | {
    "--preset",
    "--launcher",
    "--jobs",
    "--device",
}


def collect(experiment: Experiment, command: str = "") -> Results:
    """Write the results folder from the runs that are done; runs.tsv has the status of each run.

    Parameters
    ----------
    experiment : Experiment
        With at least one run that has made predictions.
    command : str
        The command that was typed, for the report.

    Returns
    -------
    Results
        The same as in the folder.
    """
    plan = experiment.plan
    store = experiment.store
    experiment.check_inputs()
    write_tsv(experiment.folder / "runs.tsv", printable_table(runs_table(experiment)))
    manifests = {task.id: store.manifest(task.id) or {} for task in plan.unique_tasks}
    evaluations = []
    encoder_seconds: dict[str, float] = {}
    for task in plan.tasks:
        manifest = manifests[task.id]
        if manifest.get("status") != DONE:
            continue
        seconds = manifest["cpu_seconds"]
        if task.cohort:
            facts = manifest["result"] | {"seconds": seconds}
            run_folder = store.run_folder(task.id)
            evaluations.append(load_evaluation(task.row, task.cohort, run_folder, facts))
        else:
            encoder_seconds[task.row.row] = encoder_seconds.get(task.row.row, 0.0) + seconds
    if not evaluations:
        raise NerveError(f"{experiment.folder}: no run has made predictions; runs.tsv says why.")
    cohorts = [experiment.evaluated(name) for name in experiment.config.cohorts]
    about = _about(experiment, command)
    results = combine(evaluations, cohorts, plan.rows, about, encoder_seconds)
    with store.wait_for_lock("results"):  # another process may be writing the same results
        experiment.check_inputs()
        results.save(experiment.folder)
        write_texts(experiment.folder, results, cohorts)
    return results


def write_texts(folder: Path, results: Results, cohorts: Sequence[EvaluatedCohort]) -> None:
    """Write protocol.md, and the paper's table in three formats.

    Parameters
    ----------
    folder : Path
        Where the results were saved.
    results : Results
        The results that were saved.
    cohorts : sequence of EvaluatedCohort
        The cohorts of the results.
    """
    texts = []
    for cohort in cohorts:
        rows = rows_on(cohort.name, results.rows, results.scores)
        summary = results.about["participants"][cohort.name]
        texts.append(protocol_text(cohort.protocol, summary, rows))
    write_markdown(folder / "protocol.md", "\n".join(texts))
    write_tables(folder)


def runs_table(experiment: Experiment) -> pd.DataFrame:
    """One row per run: id, kind, line, cohort, target, label, status, seconds, reason."""
    records = []
    for task in experiment.plan.unique_tasks:
        manifest = experiment.store.manifest(task.id) or {}
        record = {
            "id": task.id,
            "kind": task.kind,
            "line": task.row.line,
            "cohort": task.cohort,
            "target": task.target,
            "run": task.label,
            "status": experiment.store.status(task.id),
            "seconds": manifest.get("seconds"),
            "reason": manifest.get("reason", ""),
        }
        records.append(record)
    return pd.DataFrame(records, columns=_RUN_COLUMNS)


def interpret_last_nerve(experiment: Experiment) -> None:
    """Write maps of the last NERVE row, over its seeds, on the first cohort, where config asks.

    Parameters
    ----------
    experiment : Experiment
        Maps are not made again for the same models, data, targets, protocol and code.
    """
    folder = experiment.folder / INTERPRETATION
    record = folder / INTERPRETED
    models = _last_nerve_models(experiment) if experiment.config.interpret else {}
    if not models:
        if record.is_file():  # maps of a row that the config no longer asks for
            shutil.rmtree(folder)
        return
    name = next(iter(experiment.config.cohorts))
    _, protocol = experiment.participants(name)
    targets = protocol.targets[:1]  # maps of one target are enough in a comparison of methods
    data, code = experiment.inputs()
    wanted = fingerprint(
        [sorted(models.values()), data[name], code, name, targets, protocol.as_dict()]
    )
    if record.is_file() and read_json(record) == wanted:
        return
    device = experiment.config.device
    interpret_to(
        experiment.folder,
        [NERVE.from_pretrained(path, device=device) for path in models],
        experiment.cohort(name),
        targets,
        protocol.covariates,
        n_folds=protocol.n_folds,
        seed=protocol.seed,
        motion=protocol.motion,
    )
    write_json(record, wanted)


def without_secrets(command: str) -> str:
    """A command as it may be written into results: without paths and values of columns."""
    return shared_command(command, _SHOWN_OPTIONS, METHODS)


def _last_nerve_models(experiment: Experiment) -> dict[Path, str]:
    """Models (folders or archives) of the last NERVE row that is trained → id of their run."""
    done = []
    for task in experiment.plan.tasks:
        if not isinstance(task, EncoderTask | PredictionFromSavedModel):
            continue
        if task.row.method != "nerve" or task.row.kind == NULL:
            continue
        if experiment.store.status(task.id) == DONE:
            done.append(task)
    models = {}
    for task in done:
        if task.row.line == done[-1].row.line:
            if isinstance(task, PredictionFromSavedModel):
                path = Path(task.path)
            else:
                path = experiment.store.run_folder(task.id)
            models[path] = task.id
    return models


def _about(experiment: Experiment, command: str) -> dict[str, Any]:
    """What results say of an experiment as a whole."""
    config = experiment.config
    data, code = experiment.inputs()
    return {
        "title": config.title or config.name,
        "kind": "experiment",
        "layout": config.layout,
        "command": without_secrets(command),
        "parcellation": experiment.parcellation.name,
        "target_labels": {
            name: dict(cohort.target_labels) for name, cohort in config.cohorts.items()
        },
        "citations": citations_of(experiment.plan.rows),
        "seeds": list(config.seeds),
        "versions": package_versions(),
        "code": code,
        "data": data,
    }
