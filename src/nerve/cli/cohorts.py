"""Commands about cohorts: atlas, simulate, ingest, check, export."""

from __future__ import annotations

import signal
import sys
from typing import Annotated, Any

import typer

from nerve.cli.common import app, atlas, draw_likeness, named, note, say

MOST_TARGETS = 40  # columns of the participants table that `check` shows on the screen


@atlas.command("list")
def atlas_list() -> None:
    """List the built-in parcellations.

    Example: `nerve atlas list`
    """
    from nerve.parcellation import load_parcellation, parcellation_names

    for name in parcellation_names():
        parcellation = load_parcellation(name)
        networks = f"{parcellation.n_networks:>2} networks" if parcellation.n_networks > 1 else "no networks"
        say(f"{name:<16} {parcellation.n_regions:>4} regions  {networks}")
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
    out: Annotated[str, typer.Argument(callback=named, help="The new cohort folder.")],
    subjects: Annotated[int, typer.Option(help="People.")] = 300,
    parcellation: Annotated[str, typer.Option(help="A built-in name, or a TSV.")] = "schaefer100-17",
    timepoints: Annotated[int, typer.Option(help="Volumes of a scan.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of participants and scans.")] = 0,
    structure_seed: Annotated[int, typer.Option(help="Seed of what cohorts share: factors and network pairs.")] = 0,
    name: Annotated[str, typer.Option(help="Name of the cohort; by default that of the folder.")] = "",
    sites: Annotated[int, typer.Option(help="Number of scanners.")] = 3,
    effect: Annotated[float, typer.Option(help="True correlation of the targets with their factors.")] = 0.6,
    session: Annotated[int, typer.Option(help="The visit: another one scans the same participants again.")] = 1,
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

    from nerve.checks import as_utf8
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
        name=as_utf8(name or Path(out).resolve().name),
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
    out: Annotated[str, typer.Argument(callback=named, help="The cohort folder to write.")],
    format: Annotated[
        str,
        typer.Option(help="The layout: auto, xcpd, cpac, cbig, abide, conn, giga_h5, cifti, nifti, ukb, edges, plain."),
    ] = "auto",
    parcellation: Annotated[
        str | None, typer.Option(help="Regions that the cohort shall have: a name (`nerve atlas list`) or a TSV.")
    ] = None,
    order: Annotated[
        str | None, typer.Option(help="Order of the rows in files without labels, if not that of --parcellation.")
    ] = None,
    participants: Annotated[
        str | None, typer.Option(help="Table of participants (TSV, CSV or Excel), joined by id.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Our column names for theirs: age=AGE_AT_SCAN,site=SITE_ID, or a YAML file.")
    ] = None,
    values: Annotated[str, typer.Option(help="What matrices hold: r, z (Fisher), or auto (as they prove).")] = "auto",
    unfolding: Annotated[str, typer.Option(help="Triangle of vectors, row by row: upper, lower or auto.")] = "auto",
    id_pattern: Annotated[
        str | None, typer.Option(help="Regular expression whose group `id` is the participant, e.g. '(?P<id>S[0-9]+)'.")
    ] = None,
    kind: Annotated[str, typer.Option(help="FC of time series: pearson, partial or ledoit_wolf.")] = "pearson",
    data: Annotated[str, typer.Option(help="Where there are both: fc (matrices), series, or auto.")] = "auto",
    fd_threshold: Annotated[
        float | None, typer.Option(help="Leave out volumes with more framewise displacement (mm) than this.")
    ] = None,
    session: Annotated[str | None, typer.Option(help="Read only this session.")] = None,
    task: Annotated[str | None, typer.Option(help="Read only this task.")] = None,
    repeats: Annotated[
        str, typer.Option(help="Several scans of a participant: average, first, last or refuse.")
    ] = "average",
    missing: Annotated[
        str, typer.Option(help="Regions without data: drop-participant, drop-region or impute-group-mean.")
    ] = "drop-participant",
    outside: Annotated[str, typer.Option(help="Regions that the parcellation does not have: drop or keep.")] = "drop",
    atlas: Annotated[str | None, typer.Option(help="Which atlas, where a source holds several.")] = None,
    variable: Annotated[str | None, typer.Option(help="Name of the array in .mat or .npz files.")] = None,
    ids: Annotated[
        str | None, typer.Option(help="File with the ids of an array of all participants, one per line.")
    ] = None,
    atlas_image: Annotated[str | None, typer.Option(help="Label image, for sources that hold voxels.")] = None,
    denoise: Annotated[str | None, typer.Option(help="Confound strategy, for sources that hold voxels.")] = None,
    timeseries: Annotated[bool, typer.Option(help="Keep time series in the cohort.")] = False,
    dtype: Annotated[str, typer.Option(help="float32 or float16.")] = "float32",
    jobs: Annotated[int | None, typer.Option(help="Processes; as many as there are cores by default.")] = None,
    name: Annotated[str | None, typer.Option(help="What reports call the cohort.")] = None,
    strict: Annotated[bool, typer.Option(help="Stop at a participant who cannot be read.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing cohort folder.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would become of every file; write nothing.")
    ] = False,
) -> None:
    """Read matrices or time series of any known layout into one aligned, checked cohort folder.

    Example: `nerve ingest derivatives/xcp_d cohorts/pnc --parcellation schaefer400-17 --participants participants.tsv`
    """
    settings = {key: value for key, value in locals().items() if key not in ("source", "out", "dry_run")}
    signal.signal(signal.SIGTERM, _end_well)
    from nerve.readers import ingest as run
    from nerve.readers import preview
    from nerve.readers.layouts import TwoReadings

    try:
        if dry_run:
            table = preview(source, **settings)
            _show(table, source)
            named = table["participant"][~table.iloc[:, -1].str.startswith("left out")]
            say(f"{len(table)} rows, {named.nunique()} participants; nothing was written")
            return
        report = run(source, out, progress=True, **settings)
    except TwoReadings as several:
        _show(several.table, source)
        raise
    for one in report.notes:
        note(f"  {one}")
    from nerve.readers.ids import counted

    say(f"{report.path}: {counted(report.n_participants)} written, {len(report.exclusions)} left out")
    if len(report.exclusions):
        say(f"{report.path}/exclusions.tsv says who was left out and why")
    say(f"Next: nerve check {report.path}")


@app.command()
def check(
    cohort: Annotated[str, typer.Argument(help="A cohort folder.")],
    out: Annotated[
        str | None, typer.Option(callback=named, help="Write the table, and who would be dropped, to this TSV.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Also compare with what this trained model (folder, archive, name) was trained on."),
    ] = None,
    figure: Annotated[
        str | None, typer.Option(callback=named, help="Draw that comparison to this .svg, .png or .pdf.")
    ] = None,
) -> None:
    """Check a cohort: missing data, motion, values, duplicates, region order; exit 1 when it is not usable.

    Example: `nerve check cohorts/pnc --out quality.tsv`
    """
    from rich.table import Table

    from nerve.cohort import Cohort
    from nerve.quality import check_cohort
    from nerve.terminal import Console

    opened = Cohort.load(cohort)
    quality = check_cohort(opened, progress=True)
    if model is not None:
        from nerve.methods.nerve import NERVE

        like = NERVE.from_pretrained(model, device="cpu").likeness(opened)
        quality = quality.with_model(like)
        if figure is not None and like.found is not None:
            draw_likeness(figure, like, opened.name)
    elif figure is not None:
        raise typer.BadParameter("--figure draws the comparison with a model: name it with --model")
    table = Table(box=None, title=cohort, title_justify="left", pad_edge=False)
    for heading in quality.table.columns:
        table.add_column(heading, overflow="fold")
    styles = {"warning": "yellow", "not usable": "bold red", "note": "cyan"}
    targets = quality.table["check"].str.startswith("target ")
    for row in quality.table[~targets | (targets.cumsum() <= MOST_TARGETS)].itertuples(index=False):
        table.add_row(*map(str, row), style=styles.get(str(row.verdict), ""))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    if (more := targets.sum() - MOST_TARGETS) > 0:
        say(f"and {more:,} more columns of the participants table{'' if out else ': --out writes what is in them'}")
    for person, reason in quality.drops.itertuples(index=False):
        say(f"would drop {person}: {reason}")
    if out is not None:
        quality.write(out)
        say(f"{out}: written")
    say("usable" if quality.usable else f"not usable: {', '.join(quality.faults)}")
    if not quality.usable:
        raise typer.Exit(1)


@app.command()
def export(
    cohort: Annotated[str, typer.Argument(help="A cohort folder.")],
    out: Annotated[str, typer.Argument(callback=named, help="The folder to write; it must not exist, or be empty.")],
    format: Annotated[str, typer.Option(help="bids: BIDS connectivity matrices (BEP017).")] = "bids",
) -> None:
    """Write a cohort in the format of others; `nerve ingest` reads it back.

    Example: `nerve export cohorts/pnc pnc_bids --format bids`
    """
    from nerve.cohort import Cohort
    from nerve.export import export_cohort

    opened = Cohort.load(cohort)
    export_cohort(opened, out, format)
    people = "1 participant" if len(opened) == 1 else f"{len(opened):,} participants"
    say(f"{out}: {people}, {opened.parcellation.name}")
    if opened.timeseries is not None:
        say("The time series are not part of the format and were not written.")


def _show(table: Any, title: str) -> None:
    """A table on the screen, whole."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=None, title=title, title_justify="left", pad_edge=False)
    for heading in table.columns:
        shown.add_column(str(heading), overflow="fold")
    for row in table.itertuples(index=False):
        shown.add_row(*map(str, row))
    Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False).print(shown)


def _end_well(*_: Any) -> None:
    """Turn a request to end into an exception, so that unfinished files are removed."""
    raise SystemExit(143)
