"""Commands about results: evaluate, experiment, report, demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nerve.cli.common import app, named, note, say, shown_progress


@app.command()
def evaluate(
    cohort: Annotated[str, typer.Argument(help="The cohort folder.")],
    targets: Annotated[str, typer.Option(help="Columns to predict, separated by commas.")],
    out: Annotated[
        str, typer.Option(callback=named, help="The folder to write; what it already holds is not computed again.")
    ],
    features: Annotated[
        str, typer.Option(help="raw, pca, covariates, the folder of a trained model or a TSV; several with commas.")
    ] = "raw",
    covariates: Annotated[str, typer.Option(help="Columns regressed from the targets on training folds.")] = "",
    non_numeric: Annotated[
        str, typer.Option(help="Words in a covariate of numbers: refuse them, or count them as missing.")
    ] = "refuse",
    groups: Annotated[str | None, typer.Option(help="Column of families, kept whole.")] = None,
    site: Annotated[str | None, typer.Option(help="Column of the site.")] = None,
    leave_site_out: Annotated[bool, typer.Option("--leave-site-out", help="Test on sites never trained on.")] = False,
    combat: Annotated[bool, typer.Option("--combat", help="Harmonise sites on training folds.")] = False,
    preserve: Annotated[str, typer.Option(help="Columns that ComBat preserves; age and sex by default.")] = "",
    regress_features: Annotated[
        bool, typer.Option("--regress-features", help="Regress covariates from features too.")
    ] = False,
    motion: Annotated[str, typer.Option(help="Column of mean framewise displacement, auto or none.")] = "auto",
    folds: Annotated[int, typer.Option(help="Folds.")] = 10,
    repeats: Annotated[int, typer.Option(help="Repeats with other folds.")] = 1,
    kernel: Annotated[str, typer.Option(help="correlation, linear, cosine or rbf.")] = "correlation",
    components: Annotated[int, typer.Option(help="Components of the feature set pca.")] = 256,
    permutations: Annotated[int, typer.Option(help="Permutations for p values; 1000, say.")] = 0,
    bootstrap: Annotated[int, typer.Option(help="Bootstrap resamples of people.")] = 1000,
    pretrain_scope: Annotated[
        str, typer.Option(help="Who trained the models: all (these people too), train_folds or other_people.")
    ] = "not stated",
    seed: Annotated[int, typer.Option(help="Seed of folds, bootstrap and permutations.")] = 42,
) -> None:
    """Predict targets out of fold, every feature set on the same folds, and say what may be concluded.

    Writes folds.tsv, predictions.tsv, scores.tsv, comparisons.tsv, protocol.md and settings.json.

    Example: `nerve evaluate cohorts/ucla --features raw,pca,runs/first --targets age,sex --out results/ucla`
    """
    from nerve.cohort import Cohort
    from nerve.evaluation import evaluate_to, feature_sets, make_settings
    from nerve.files import write_json

    settings = make_settings(
        targets,
        covariates,
        non_numeric=non_numeric,
        groups=groups,
        site=site,
        leave_site_out=leave_site_out,
        combat=combat,
        preserve=preserve,
        regress_features=regress_features,
        motion=None if motion == "none" else motion,
        n_folds=folds,
        n_repeats=repeats,
        kernel=kernel,
        n_components=components,
        n_permutations=permutations,
        n_bootstrap=bootstrap,
        pretrain_scope=pretrain_scope,
        seed=seed,
    )
    data = Cohort.load(cohort)
    sets = feature_sets(_named_features(features, data), data, scope=pretrain_scope)
    with shown_progress() as progress:
        scores, comparisons, notes = evaluate_to(out, sets, data, settings, progress)
    write_json(Path(out) / "inputs.json", {"cohort": str(Path(cohort).resolve())})  # for the report's cohort figures
    for one in notes:
        note(f"note: {one}", typer.colors.YELLOW)
    _say_scores(scores, comparisons)
    say(f"{out}: folds, predictions, scores, comparisons (TSV) and protocol.md")


def _named_features(names: str, cohort: Any) -> dict[str, Any]:
    """What `--features` names, by the name that tables will show; folders are trained models and are embedded here."""
    from nerve.checks import NerveError
    from nerve.evaluation.people import as_names

    found: dict[str, Any] = {}
    for name in as_names(names):
        path = Path(name)
        label = path.stem if path.is_file() else path.resolve().name if path.is_dir() else name
        if label in found:
            raise NerveError(f"Two feature sets are called {label!r}, expected different names. Rename one of them.")
        found[label] = _embedded(path, cohort) if path.is_dir() else name
    return found


def _embedded(run: Any, cohort: Any) -> Any:
    from nerve.checks import NerveError
    from nerve.files import read_json
    from nerve.methods import METHODS, method_class

    described = read_json(run / "config.json") if (run / "config.json").is_file() else {}
    name = str(described.get("method", "nerve")).lower()
    method = method_class(name if name in METHODS else "nerve")
    if not hasattr(method, "transform"):
        raise NerveError(
            f"{run}: holds a {described.get('method')}, which was trained on a target, expected an encoder. "
            "Supervised methods are trained inside each fold: use `nerve experiment`."
        )
    return method.load(run).transform(cohort)


@app.command()
def experiment(
    config: Annotated[str | None, typer.Argument(help="A YAML file: cohorts, methods, protocol, seeds.")] = None,
    out: Annotated[str | None, typer.Option("--out", callback=named, help="The folder of runs and results.")] = None,
    launcher: Annotated[str, typer.Option(help="local or slurm.")] = "local",
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time (local); one a core or card.")] = None,
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
def report(folder: Annotated[str, typer.Argument(help="What `nerve experiment` or `nerve evaluate` wrote.")]) -> None:
    """Write report.html beside what it reads.

    Example: `nerve report out/table2`
    """
    from nerve.report.page import write_report

    say(f"{write_report(folder)}")


@app.command()
def demo(
    out: Annotated[str, typer.Argument(callback=named, help="Folder for everything it makes.")] = "out/demo",
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time; one a core by default.")] = None,
) -> None:
    """Simulated cohorts with a known answer → pretrain → embed → evaluate → report.html, in minutes.

    Example: `nerve demo out/demo`
    """
    from nerve.experiments import commands

    if commands.demo(out, jobs):
        raise typer.Exit(1)


def _say_scores(scores: Any, comparisons: Any) -> None:
    for row in scores.itertuples():
        auc = "" if row.auc != row.auc else f"  AUC {row.auc:.3f}"
        p = f"  p {row.p:.4f}" if "p" in scores else ""
        say(
            f"{row.target:<20} {row.method:<12} r {row.r:+.3f} ± {row.r_half_width:.3f}"
            f"  fold-mean r {row.r_fold_mean:+.3f}  R² {row.r2:+.3f}  n {row.n}{auc}{p}"
            f"  (pretrain_scope: {row.pretrain_scope})"
        )
    if len(comparisons):
        for row in comparisons[comparisons["best_two"]].itertuples():
            tie = " (a tie to three decimals)" if row.tie else ""
            pair = f"{row.method_a} against {row.method_b}"
            say(f"{row.target}: {pair}, difference {row.difference:+.3f}, p {row.p:.3f}{tie}")
