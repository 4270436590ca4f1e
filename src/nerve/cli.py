"""What users type. Each command parses, calls one function of the package and says what was written where.

Heavy imports (torch, pandas) happen inside the commands, so that `nerve --help` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="nerve",
    help="Representations of brain functional connectivity, and an honest test of what they predict.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
atlas = typer.Typer(help="The built-in parcellations.", no_args_is_help=True)
app.add_typer(atlas, name="atlas")


def say(text: str) -> None:
    """Print one line for the user, on standard output."""
    typer.echo(text)


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from importlib.metadata import version as installed

        say(f"nerve {installed('nerve-fc')}")
        raise typer.Exit


@atlas.command("list")
def atlas_list() -> None:
    """List the built-in parcellations.

    Example: `nerve atlas list`
    """
    from nerve.parcellation import load_parcellation, parcellation_names

    for name in parcellation_names():
        parcellation = load_parcellation(name)
        say(f"{name:<16} {parcellation.n_regions:>4} regions  {parcellation.n_networks:>2} networks")
    say("\nAdd +aseg19 for the 19 subcortical regions that CBIG appends. Any other atlas: a TSV with label, network.")


@atlas.command("show")
def atlas_show(
    name: Annotated[str, typer.Argument(help="A built-in name, or a TSV with columns label, network.")],
    regions: Annotated[bool, typer.Option("--regions", help="Print every region as TSV.")] = False,
) -> None:
    """Show the networks of a parcellation, its patches, or every region.

    Example: `nerve atlas show schaefer400-17 --regions > regions.tsv`
    """
    from nerve.parcellation import load_parcellation
    from nerve.patching import Patching

    parcellation = load_parcellation(name)
    if regions:
        say(parcellation.to_table().to_csv(sep="\t", index=False, na_rep="n/a").rstrip())
        return
    patching = Patching.from_parcellation(parcellation)
    say(f"{parcellation.name}: {parcellation.n_regions} regions, {parcellation.n_networks} networks")
    for group, members in zip(patching.group_names, patching.members, strict=True):
        say(f"  {group:<16} {len(members):>4} regions")
    say(f"{patching.n_patches} patches, {patching.n_entries:,} packed entries, largest {patching.sizes.max():,}")


@app.command()
def simulate(
    out: Annotated[str, typer.Argument(help="The new cohort folder.")],
    subjects: Annotated[int, typer.Option(help="People.")] = 300,
    parcellation: Annotated[str, typer.Option(help="A built-in name, or a TSV.")] = "schaefer100-17",
    timepoints: Annotated[int, typer.Option(help="Volumes of a scan.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of people and scans.")] = 0,
    structure_seed: Annotated[int, typer.Option(help="Seed of what cohorts share: factors and network pairs.")] = 0,
    name: Annotated[str, typer.Option(help="Name of the cohort; by default that of the folder.")] = "",
    sites: Annotated[int, typer.Option(help="Number of scanners.")] = 3,
    effect: Annotated[float, typer.Option(help="True correlation of the targets with their factors.")] = 0.6,
    session: Annotated[int, typer.Option(help="The visit: another one scans the same people again.")] = 1,
    family_size: Annotated[int, typer.Option(help="Siblings a family.")] = 1,
    timeseries: Annotated[bool, typer.Option(help="Keep time series; without them it is faster.")] = True,
    dtype: Annotated[str, typer.Option(help="float32, or float16 for very large cohorts.")] = "float32",
    scores: Annotated[bool, typer.Option("--scores", help="Also write truth_scores.tsv.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing folder.")] = False,
) -> None:
    """Simulate a cohort with planted effects; what was planted is written beside it, in truth.json.

    Example: `nerve simulate cohort-a --subjects 300 --seed 1`
    """
    from pathlib import Path

    from nerve.files import read_json
    from nerve.simulate import default_targets, simulate_to

    folder = simulate_to(
        out,
        subjects,
        parcellation,
        timepoints,
        dtype=dtype,
        scores=scores,
        overwrite=overwrite,
        progress=True,
        seed=seed,
        structure_seed=structure_seed,
        name=name or Path(out).resolve().name,
        sites=sites,
        targets=default_targets(effect),
        session=session,
        family_size=family_size,
        keep_timeseries=timeseries,
    )
    series = f", time series of {timepoints} volumes" if timeseries else ""
    say(f"{folder}: {subjects} participants, {parcellation}{series}")
    for target, relation in read_json(folder / "truth.json")["targets"].items():
        pairs = ", ".join("–".join(pair) for pair in relation["pairs"]) or "no network pair"
        say(f"  {target:<14} true r {relation['true_r']:.2f}  on {pairs}")


@app.command()
def ingest(
    source: Annotated[str, typer.Argument(help="A folder or a file of matrices or time series.")],
    out: Annotated[str, typer.Argument(help="The cohort folder to write.")],
    format: Annotated[str, typer.Option(help="auto, xcpd, cpac, cbig, abide, cifti, nifti, ukb or plain.")] = "auto",
    parcellation: Annotated[
        str | None, typer.Option(help="Regions that the cohort shall have: a name (`nerve atlas list`) or a TSV.")
    ] = None,
    order: Annotated[
        str | None, typer.Option(help="Order of the rows in files without labels, if not that of --parcellation.")
    ] = None,
    participants: Annotated[str | None, typer.Option(help="Table of participants (TSV or CSV), joined by id.")] = None,
    columns: Annotated[
        str | None, typer.Option(help="Our column names for theirs: age=AGE_AT_SCAN,site=SITE_ID, or a YAML file.")
    ] = None,
    values: Annotated[str, typer.Option(help="What matrices hold: r or z (Fisher).")] = "r",
    kind: Annotated[str, typer.Option(help="FC of time series: pearson, partial or ledoit_wolf.")] = "pearson",
    data: Annotated[str, typer.Option(help="Where there are both: fc (matrices), series, or auto.")] = "auto",
    fd_threshold: Annotated[
        float | None, typer.Option(help="Leave out volumes with more framewise displacement (mm) than this.")
    ] = None,
    session: Annotated[str | None, typer.Option(help="Read only this session.")] = None,
    task: Annotated[str | None, typer.Option(help="Read only this task.")] = None,
    repeats: Annotated[
        str, typer.Option(help="Several scans of a person: average, first, last or refuse.")
    ] = "average",
    missing: Annotated[
        str, typer.Option(help="Regions without data: drop-participant, drop-region or impute-group-mean.")
    ] = "drop-participant",
    outside: Annotated[str, typer.Option(help="Regions that the parcellation does not have: drop or keep.")] = "drop",
    atlas: Annotated[str | None, typer.Option(help="Which atlas, where a source holds several.")] = None,
    variable: Annotated[str | None, typer.Option(help="Name of the array in .mat or .npz files.")] = None,
    ids: Annotated[str | None, typer.Option(help="File with the ids of a stacked array, one a line.")] = None,
    atlas_image: Annotated[str | None, typer.Option(help="Label image, for sources that hold voxels.")] = None,
    denoise: Annotated[str | None, typer.Option(help="Confound strategy, for sources that hold voxels.")] = None,
    timeseries: Annotated[bool, typer.Option(help="Keep time series in the cohort.")] = False,
    dtype: Annotated[str, typer.Option(help="float32 or float16.")] = "float32",
    jobs: Annotated[int | None, typer.Option(help="Processes; as many as there are cores by default.")] = None,
    name: Annotated[str | None, typer.Option(help="What reports call the cohort.")] = None,
    strict: Annotated[bool, typer.Option(help="Stop at a participant who cannot be read.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing cohort folder.")] = False,
) -> None:
    """Read matrices or time series of any known layout into one aligned, checked cohort folder.

    Example: `nerve ingest derivatives/xcp_d cohorts/pnc --parcellation schaefer400-17 --participants participants.tsv`
    """
    settings = {key: value for key, value in locals().items() if key not in ("source", "out")}
    signal.signal(signal.SIGTERM, _end_well)
    from nerve.readers import ingest as run

    report = run(source, out, progress=True, **settings)
    for note in report.notes:
        typer.secho(f"  {note}", err=True)
    say(f"{report.path}: {report.n_participants} participants written, {len(report.exclusions)} left out")
    if len(report.exclusions):
        say(f"{report.path}/exclusions.tsv says who was left out and why")
    say(f"Next: nerve check {report.path}")


@app.command()
def check(
    cohort: Annotated[str, typer.Argument(help="A cohort folder.")],
    out: Annotated[str | None, typer.Option(help="Write the table, and who would be dropped, to this TSV.")] = None,
) -> None:
    """Check a cohort: missing data, motion, values, duplicates, region order; exit 1 when it is unusable.

    Example: `nerve check cohorts/pnc --out quality.tsv`
    """
    from rich.console import Console
    from rich.table import Table

    from nerve.cohort import Cohort
    from nerve.quality import check_cohort

    quality = check_cohort(Cohort.load(cohort), progress=True)
    table = Table(box=None, title=cohort, title_justify="left", pad_edge=False)
    for heading in quality.table.columns:
        table.add_column(heading, overflow="fold")
    styles = {"warning": "yellow", "unusable": "bold red", "note": "cyan"}
    for row in quality.table.itertuples(index=False):
        table.add_row(*map(str, row), style=styles.get(str(row.verdict), ""))
    console = Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False)
    console.print(table)
    for person, reason in quality.drops.itertuples(index=False):
        say(f"would drop {person}: {reason}")
    if out is not None:
        quality.write(out)
        say(f"{out}: written")
    say("usable" if quality.usable else "unusable: see the verdicts above")
    if not quality.usable:
        raise typer.Exit(1)


def _end_well(*_: Any) -> None:
    """Turn a request to end into an exception, so that unfinished files are removed."""
    raise SystemExit(143)


@app.command()
def pretrain(
    cohorts: Annotated[list[str], typer.Argument(help="Cohort folders, pooled in the region order of the first.")],
    out: Annotated[str, typer.Option("--out", help="The run folder to write.")],
    preset: Annotated[str | None, typer.Option(help="default, paper or small.")] = None,
    config: Annotated[str | None, typer.Option(help="A YAML file of settings.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, as key=value; repeat it.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in the run folder.")] = False,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = None,
) -> None:
    """Train NERVE on one or several cohorts. Ctrl-C or SIGTERM write a checkpoint; `--resume` goes on from it.

    Example: `nerve pretrain cohorts/ucla cohorts/stages --out runs/first --preset small --set epochs=100`

    On several processes: `torchrun --nproc-per-node 2 -m nerve pretrain …`
    """
    import logging

    from nerve.methods.runs import pretrain as run
    from nerve.training import TrainingStopped

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        encoder = run(
            cohorts, out, preset=preset, config=config, assignments=assignments or [], resume=resume, device=device
        )
    except TrainingStopped as stopped:
        typer.secho(f"nerve: {stopped}", fg=typer.colors.YELLOW, err=True)
        raise typer.Exit(128 + stopped.signal_number) from None
    if os.environ.get("RANK", "0") == "0":
        last = encoder.history_.iloc[-1]
        say(
            f"{out}: {int(last['step'])} steps, training loss {last['training_loss']:.4g}, best at {encoder.best_step_}"
        )


@app.command()
def embed(
    run: Annotated[str, typer.Argument(help="The folder of a trained model.")],
    cohort: Annotated[str, typer.Argument(help="The cohort folder to embed.")],
    out: Annotated[str, typer.Argument(help="A .tsv (participant_id, dim0 …) or a .npy.")],
    pooling: Annotated[
        str | None, typer.Option(help="mean, cls, tokens (needs .npy), factors or pca; as the model does by default.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
) -> None:
    """Write the embeddings of a cohort. Its regions are matched by label; missing ones are named.

    Example: `nerve embed runs/first cohorts/ucla ucla.tsv --pooling mean`
    """
    from nerve.methods.runs import embed_file

    values = embed_file(run, cohort, out, pooling=pooling, device=device)
    say(f"{out}: {' x '.join(map(str, values.shape))}{f' ({pooling})' if pooling else ''}")


@app.command()
def experiment(
    config: Annotated[str | None, typer.Argument(help="A YAML file: cohorts, methods, protocol, seeds.")] = None,
    out: Annotated[str | None, typer.Option("--out", help="The folder of runs and results.")] = None,
    launcher: Annotated[str, typer.Option(help="local or slurm.")] = "local",
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time (local); one a core or card.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the runs and estimate the time; run none.")] = False,
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
    failures = commands.plan_only(config, out) if dry_run else commands.run(config, out, launcher, jobs)
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
    out: Annotated[str, typer.Argument(help="Folder for everything it makes.")] = "out/demo",
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at a time; one a core by default.")] = None,
) -> None:
    """Simulated cohorts with a known answer → pretrain → embed → evaluate → report.html, in minutes.

    Example: `nerve demo out/demo`
    """
    from nerve.experiments import commands

    if commands.demo(out, jobs):
        raise typer.Exit(1)


@app.command()
def evaluate(
    cohort: Annotated[str, typer.Argument(help="The cohort folder.")],
    targets: Annotated[str, typer.Option(help="Columns to predict, separated by commas.")],
    out: Annotated[str, typer.Option(help="The folder to write; what it already holds is not computed again.")],
    features: Annotated[
        str, typer.Option(help="raw, pca, covariates, the folder of a trained model or a TSV; several with commas.")
    ] = "raw",
    covariates: Annotated[str, typer.Option(help="Columns regressed from the targets on training folds.")] = "",
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

    settings = make_settings(
        targets,
        covariates,
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
    with _progress() as progress:
        scores, comparisons, notes = evaluate_to(out, sets, data, settings, progress)
    for note in notes:
        typer.secho(f"note: {note}", fg=typer.colors.YELLOW, err=True)
    _say_scores(scores, comparisons)
    say(f"{out}: folds, predictions, scores, comparisons (TSV) and protocol.md")


def _named_features(names: str, cohort: Any) -> dict[str, Any]:
    """What `--features` names, by the name that tables will show; folders are trained models and are embedded here."""
    from pathlib import Path

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
def interpret(
    runs: Annotated[list[str], typer.Argument(help="The folder of a trained model; several that differ in the seed.")],
    cohort: Annotated[str, typer.Argument(help="The cohort folder.")],
    targets: Annotated[str, typer.Option(help="Columns whose prediction to explain, separated by commas.")] = "",
    covariates: Annotated[str, typer.Option(help="Columns regressed from the targets on training folds.")] = "",
    out: Annotated[str | None, typer.Option(help="Where to write interpretation/; the first run by default.")] = None,
    pooling: Annotated[str | None, typer.Option(help="mean, cls or tokens; as in the run by default.")] = None,
    groups: Annotated[str | None, typer.Option(help="Column of families, kept whole.")] = None,
    folds: Annotated[int, typer.Option(help="Folds.")] = 10,
    repeats: Annotated[int, typer.Option(help="Repeats with other folds.")] = 1,
    kernel: Annotated[str, typer.Option(help="correlation, linear, cosine or rbf.")] = "correlation",
    bootstrap: Annotated[int, typer.Option(help="Bootstrap resamples of people.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of folds and bootstrap.")] = 42,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
) -> None:
    """Say what encoders rely on: regions, attention between networks, and the network pairs behind a prediction.

    Give runs with different seeds to learn how stable the maps are.

    Example: `nerve interpret runs/seed0 runs/seed1 cohorts/ucla --targets age --out results/ucla`
    """
    from nerve.cohort import Cohort
    from nerve.interpret import interpret_to, load_encoder

    encoders = [load_encoder(run, device) for run in runs]
    for encoder in encoders if pooling else []:
        encoder.set_params(pooling=pooling)
    options = {"groups": groups, "n_folds": folds, "n_repeats": repeats, "kernel": kernel, "seed": seed}
    with _progress() as progress:
        tables = interpret_to(
            out or runs[0], encoders, Cohort.load(cohort), targets, covariates, progress=progress,
            n_bootstrap=bootstrap, **options,
        )  # fmt: skip
    for row in tables["importance"].groupby("target", sort=False).head(3).itertuples() if targets else []:
        say(
            f"{row.target:<20} {row.network_a}–{row.network_b}  r {row.r:+.3f}, hidden {row.r_occluded:+.3f}, "
            f"drop {row.drop:+.3f} [{row.drop_low:+.3f}, {row.drop_high:+.3f}]"
        )
    if len(encoders) < 2:
        typer.secho("note: one run; give runs with other seeds to learn how stable its maps are.", err=True)
    say(f"{out or runs[0]}/interpretation: {', '.join(tables)} (TSV) and stability.json")


@app.command("methods")
def methods(
    parcellation: Annotated[
        str, typer.Option("--parcellation", help="Count parameters for this parcellation.")
    ] = "schaefer400-17",
    preset: Annotated[str, typer.Option("--preset", help="Count parameters of this preset: paper or small.")] = "paper",
    tsv: Annotated[bool, typer.Option("--tsv", help="Print a table for other programs.")] = False,
) -> None:
    """List the methods: what each needs, its size, its paper, and what we changed.

    Example: `nerve methods`
    """
    from nerve.methods.listing import method_table

    table = method_table(parcellation, preset)
    if tsv:
        say(table.to_csv(sep="\t", index=False).rstrip())
        return
    for row in table.to_dict("records"):
        learns = "learns with a target, inside each fold" if row["supervised"] else "learns without labels"
        size = f"{learns}; {row['parameters']:,} parameters" if row["parameters"] else "nothing to train"
        say(f"{row['method']:<12} needs {row['needs']}; {size}")
        say(f"{'':<12} {row['paper']}")
        if row["adapted"]:
            say(f"{'':<12} ours: {row['adapted']}")
    say(f"\nParameters are those of the preset {preset!r} with {parcellation}.")


@contextmanager
def _progress() -> Iterator[Any]:
    """A progress bar on standard error, as a function of a label and the share done."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def update(label: str, share: float) -> None:
            if label not in tasks:
                tasks[label] = bar.add_task(label, total=1.0)
            bar.update(tasks[label], completed=share)

        yield update


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


def main() -> None:
    """Run the command line: a `NerveError` becomes one sentence and exit code 1, never a traceback."""
    from nerve.checks import NerveError

    warnings.showwarning = _show_warning
    try:
        app()
    except NerveError as error:
        typer.secho(f"nerve: {error}", fg=typer.colors.RED, err=True)
        sys.exit(1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    typer.secho(f"note: {message}", fg=typer.colors.YELLOW, err=True)
