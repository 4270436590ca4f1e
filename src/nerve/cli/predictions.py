"""Commands about predictions: evaluate, predict, run, experiment, report, demo."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import nerve
from nerve.cli.common import (
    MODEL,
    app,
    argument,
    note,
    option,
    output,
    protocol_table,
    say,
    with_protocol,
    with_table,
)
from nerve.evaluation.protocol import FIELDS

# fields of the protocol that are options of `nerve run`; its --seed is that of the training too
_RUN_FIELDS = [name for name in FIELDS if name != "seed"]


@app.command()
@with_protocol()
def evaluate(
    cohort: Annotated[str, argument("The cohort folder.")],
    out: Annotated[str, output("The folder to write; results that it already holds are replaced.")],
    protocol: Any,
    features: Annotated[
        str,
        option(
            "What predicts, separated by commas: names of `nerve methods` (raw, pca, tangent, "
            "covariates …), trained models (folder, archive, name in `nerve models list`), "
            "finetune:MODEL, tables with participant_id."
        ),
    ] = "raw",
    test: Annotated[
        list[str] | None,
        option("Another cohort folder, predicted by what is fitted on COHORT; may be repeated."),
    ] = None,
    save_model: Annotated[
        str | None,
        output(
            "A folder to write: the model of the one feature set, fitted on all of COHORT, which "
            "`nerve predict` reads."
        ),
    ] = None,
    parcellation: Annotated[
        str | None, option("Resample all cohorts to these regions: a built-in name, or a TSV.")
    ] = None,
) -> None:
    """Predict targets out of fold, on the same folds for every row, and say what was found.

    Writes the results folder (rows, predictions, scores, comparisons, protocol) and report.html.

    Example: `nerve evaluate cohorts/ucla --features raw,pca,runs/first --targets age,sex --out
    results/ucla`
    """
    from nerve.data.common_space import naming_resampling
    from nerve.experiments import commands

    names = nerve.evaluation.protocol.as_names(features)
    model = None
    if save_model:  # refused before anything is computed
        model = commands.model_to_keep(names, protocol, save_model)
    with naming_resampling([cohort, *(test or [])], "--parcellation"):
        commands.run_evaluation(
            cohort, names, protocol, out, test=test or [], parcellation=parcellation
        )
    if model is not None and save_model:
        training = nerve.Cohort.load(cohort)
        if parcellation is not None:
            training = training.resample(parcellation)
        path = model.fit(training).save(save_model)
        say(f"{path}: `nerve predict` reads it")


@app.command()
def predict(
    model: Annotated[str, argument("The folder that `nerve evaluate --save-model` wrote.")],
    cohort: Annotated[str, argument("The cohort folder whose participants are predicted.")],
    out: Annotated[str, argument("A .tsv: participant_id, target, predicted …")],
    overwrite: Annotated[bool, option("Replace an existing table.", "--overwrite")] = False,
    resample: Annotated[
        bool, option("Resample a cohort of other regions to those of the model.", "--resample")
    ] = False,
    calibrate: Annotated[
        str | None,
        option(
            "A table with participant_id and the targets of some participants: predictions are "
            "moved to their mean."
        ),
    ] = None,
) -> None:
    """Predict targets of new participants with a model that `nerve evaluate` has kept.

    Regions are matched by label, covariates by name. Other regions are refused without --resample.

    Example: `nerve predict models/age cohorts/new predictions.tsv`
    """
    from nerve.data.common_space import naming_resampling
    from nerve.data.readers.ids import counted
    from nerve.methods.kept_model import predict_file

    with naming_resampling([cohort], "--resample"):
        table = predict_file(
            model, cohort, out, overwrite=overwrite, resample=resample, calibrate=calibrate
        )
    participants = counted(table["participant_id"].nunique())
    targets = counted(table["target"].nunique(), "target")
    say(f"{out}: {participants}, {targets}")
    if "low" in table and calibrate is None:
        say(
            "low and high cover nine of ten participants of the training cohort, each predicted by "
            "a model of the others. In participants unlike these they cover fewer."
        )


@app.command()
@with_table(protocol_table(_RUN_FIELDS, targets=..., pretrain_scope="all"))
def run(
    cohort: Annotated[str, argument("The cohort folder.")],
    out: Annotated[str, output("The folder to write; results that it already holds are replaced.")],
    options: dict[str, Any],
    model: Annotated[str | None, option(f"{MODEL}; without it, NERVE is trained.")] = None,
    preset: Annotated[
        str, option("Preset of the pretraining: default, small or paper.")
    ] = "default",
    seed: Annotated[
        int | None,
        option(
            "Seed of training, folds, bootstrap and permutations; "
            f"by default 0 for the training and {FIELDS['seed'].default} for the others.",
            min=0,
        ),
    ] = None,
) -> None:
    """Check → pretrain → evaluate → interpret → one report.

    Compares raw FC, PCA, tangent space and NERVE on one cohort.

    Example: `nerve run cohorts/ucla --targets age,sex --covariates site --out results/ucla`
    """
    from nerve.data.common_space import naming_resampling
    from nerve.experiments import commands
    from nerve.methods.pretrained import find_model

    seeds = {} if seed is None else {"seed": seed}
    protocol = nerve.Protocol(**options, **seeds)
    encoder: Any
    if model is None:
        encoder = nerve.NERVE.from_preset(preset, **seeds)
    else:
        encoder = str(find_model(model))
    quality = commands.check_usable(cohort)
    features = ["raw", "pca", "tangent", encoder]
    with naming_resampling([cohort]):
        commands.run_evaluation(cohort, features, protocol, out, quality=quality)


@app.command()
def experiment(
    config: Annotated[
        str | None, argument("A YAML file: cohorts, methods, protocol, seeds.")
    ] = None,
    out: Annotated[str | None, output("The folder of runs and results.")] = None,
    launcher: Annotated[str, option("local or slurm.")] = "local",
    jobs: Annotated[
        int | None, option("Runs at a time (local); one per core or card.", min=1)
    ] = None,
    dry_run: Annotated[
        bool, option("Count the runs, and those that are done; run none.", "--dry-run")
    ] = False,
    rehearse: Annotated[
        bool, option("The same tables in minutes, on small simulated cohorts.", "--rehearse")
    ] = False,
    status: Annotated[
        str | None, option("Print the status of the runs of this folder.", "--status")
    ] = None,
) -> None:
    """Run a whole comparison from one file; what is done already is skipped.

    Example: `nerve experiment configs/table2_tokenizers.yaml --out out/table2 --jobs 2`
    """
    from nerve.experiments import commands, terminal
    from nerve.experiments.experiment import Experiment

    if status is not None:
        terminal.show_status(Experiment.open(status))
        return
    if config is None or out is None:
        raise typer.BadParameter("expected CONFIG and --out DIR, or --status DIR")
    if dry_run:
        commands.count_runs(config, out, rehearse)
        return
    failures = commands.run_experiment(config, out, launcher, jobs, rehearse)
    if failures:
        raise typer.Exit(1)


@app.command()
def report(
    folder: Annotated[str, argument("What `nerve experiment`, `evaluate` or `pretrain` wrote.")],
    cohort: Annotated[
        list[str] | None,
        option("Folder of a cohort, for figures of its participants; may be repeated."),
    ] = None,
    overwrite: Annotated[
        bool, option("Replace a report.html that is not as nerve wrote it.", "--overwrite")
    ] = False,
) -> None:
    """Write report.html beside what it reads.

    It opens nothing outside the folder except what --cohort names.

    Example: `nerve report out/table2`
    """
    from nerve.report.load import cohorts_by_name
    from nerve.report.page import write_report

    cohorts = [nerve.Cohort.load(path) for path in cohort or []]
    path = write_report(folder, cohorts_by_name(folder, cohorts), overwrite=overwrite)
    say(str(path))


@app.command()
def demo(
    out: Annotated[str, argument("Folder for everything it makes.")] = "out/demo",
    jobs: Annotated[int | None, option("Runs at a time; one per core by default.", min=1)] = None,
) -> None:
    """Simulate cohorts with a known answer → pretrain → embed → evaluate → report, in minutes.

    Example: `nerve demo out/demo`
    """
    note(f"Simulated cohorts, methods and report will be in {out}.")
    from nerve.experiments import commands

    failures = commands.run_demo(out, jobs)
    if failures:
        raise typer.Exit(1)
