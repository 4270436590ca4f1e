"""Commands about results: evaluate, experiment, report, demo."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from nerve.cli.common import app, named, note, say
from nerve.cli.protocol_options import with_protocol


@app.command()
@with_protocol
def evaluate(
    cohort: Annotated[str, typer.Argument(help="The cohort folder.")],
    out: Annotated[
        str, typer.Option(callback=named, help="The folder to write; what it already holds is not computed again.")
    ],
    protocol: Any,
    features: Annotated[
        str,
        typer.Option(
            help="What predicts, separated by commas: names of `nerve methods` (raw, pca, tangent, covariates …), "
            "trained models (folder, archive, name in `nerve models list`), tables with participant_id."
        ),
    ] = "raw",
    test: Annotated[
        list[str] | None,
        typer.Option(help="Another cohort folder, predicted by what is fitted on COHORT; may be repeated."),
    ] = None,
    save_model: Annotated[
        str | None,
        typer.Option(
            callback=named, help="A folder for the probe of the one row, fitted on all of COHORT: `nerve predict`."
        ),
    ] = None,
) -> None:
    """Predict targets out of fold, every row on the same folds, and say what may be concluded.

    Writes the results folder (rows, predictions, scores, comparisons, protocol) and report.html.

    Example: `nerve evaluate cohorts/ucla --features raw,pca,runs/first --targets age,sex --out results/ucla`
    """
    from nerve.experiments import commands
    from nerve.protocol import as_names

    rows = [commands.feature_row(name) for name in as_names(features)]
    if save_model is not None:
        commands.check_probe(rows, protocol, save_model)
    ended = commands.evaluate(cohort, rows, protocol, out, _typed(), test=test or [])
    if save_model is not None and not ended[1]:
        say(f"{commands.save_probe(cohort, rows[0], protocol, save_model)}: `nerve predict` reads it")
    _close(*ended)


@app.command()
def predict(
    probe: Annotated[str, typer.Argument(help="What `nerve evaluate --save-model` wrote.")],
    cohort: Annotated[str, typer.Argument(help="The cohort folder whose participants are predicted.")],
    out: Annotated[str, typer.Argument(callback=named, help="A .tsv: participant_id, target, predicted …")],
) -> None:
    """Predict new participants by a probe that was kept. Regions are matched by label, covariates by name.

    Example: `nerve predict probes/age cohorts/new predictions.tsv`
    """
    from nerve.methods.probe import predict_file

    table = predict_file(probe, cohort, out)
    n = table["participant_id"].nunique()
    say(f"{out}: {n} participant{'s' if n != 1 else ''}, {table['target'].nunique()} target(s)")


@app.command()
@partial(with_protocol, pretrain_scope="all")
def run(
    cohort: Annotated[str, typer.Argument(help="The cohort folder.")],
    out: Annotated[str, typer.Option(callback=named, help="The folder to write; what is done is not done again.")],
    protocol: Any,
    model: Annotated[
        str | None,
        typer.Option(
            help="A trained model (folder, archive, name in `nerve models list`); without it, NERVE is trained."
        ),
    ] = None,
    preset: Annotated[str, typer.Option(help="Preset of the pretraining: default, small or paper.")] = "default",
) -> None:
    """Check → pretrain → evaluate → interpret → one report: raw FC, PCA, tangent space and NERVE on one cohort.

    Example: `nerve run cohorts/ucla --targets age,sex --covariates site --out results/ucla`
    """
    from nerve.experiments import commands

    learned = {"method": "nerve", "preset": preset} if model is None else commands.model_row(model)
    rows = [*({"method": name} for name in ("raw", "pca", "tangent")), learned]
    quality = commands.check_usable(cohort)
    _close(*commands.evaluate(cohort, rows, protocol, out, _typed(), interpret=True, quality=quality))


def _typed() -> str:
    import shlex
    import sys

    return shlex.join(["nerve", *sys.argv[1:]])


def _close(notes: list[str], failures: list[str]) -> None:
    for one in notes:
        note(f"note: {one}", typer.colors.YELLOW)
    if failures:
        raise typer.Exit(1)


@app.command()
def experiment(
    config: Annotated[str | None, typer.Argument(help="A YAML file: cohorts, methods, protocol, seeds.")] = None,
    out: Annotated[str | None, typer.Option("--out", callback=named, help="The folder of runs and results.")] = None,
    launcher: Annotated[str, typer.Option(help="local or slurm.")] = "local",
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time (local); one per core or card.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the runs and estimate the time; run none.")] = False,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="The same rows and tables in minutes, on small simulated cohorts.")
    ] = False,
    status: Annotated[str | None, typer.Option("--status", help="Say how the runs of this folder stand.")] = None,
) -> None:
    """Run a whole comparison from one file; what is done already is skipped.

    Example: `nerve experiment configs/table2_tokenizers.yaml --out out/table2 --jobs 2`
    """
    from nerve.experiments import commands

    if status is not None:
        commands.show(status)
        return
    if config is None or out is None:
        raise typer.BadParameter("expected CONFIG and --out DIR, or --status DIR")
    if dry_run:
        failures = commands.plan_only(config, out, rehearse)
    else:
        failures = commands.run(config, out, launcher, jobs, rehearse)
    if failures:
        raise typer.Exit(1)


@app.command()
def report(
    folder: Annotated[str, typer.Argument(help="What `nerve experiment`, `evaluate` or `pretrain` wrote.")],
    cohort: Annotated[
        list[str] | None, typer.Option(help="Folder of a cohort, for figures of its participants; may be repeated.")
    ] = None,
) -> None:
    """Write report.html beside what it reads; nothing outside the folder is opened but what --cohort names.

    Example: `nerve report out/table2`
    """
    from nerve.cohort import Cohort
    from nerve.progress import Progress
    from nerve.report.page import write_report

    opened = [Cohort.load(path) for path in cohort or []]
    with Progress("writing the report"):
        path = write_report(folder, {one.name: one for one in opened})
    say(f"{path}")


@app.command()
def demo(
    out: Annotated[str, typer.Argument(callback=named, help="Folder for everything it makes.")] = "out/demo",
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time; one per core by default.")] = None,
) -> None:
    """Simulated cohorts with a known answer → pretrain → embed → evaluate → report.html, in minutes.

    Example: `nerve demo out/demo`
    """
    from nerve.experiments import commands

    if commands.demo(out, jobs):
        raise typer.Exit(1)
