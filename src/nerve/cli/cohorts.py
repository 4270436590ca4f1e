"""Commands about cohorts: atlas, simulate, ingest, check, resample, export."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import nerve
from nerve._utils.console import Console
from nerve._utils.errors import as_utf8
from nerve._utils.files import read_json
from nerve.cli.common import (
    MODEL,
    app,
    argument,
    draw_common_space,
    draw_likeness,
    note,
    option,
    output,
    say,
    with_table,
)
from nerve.data import readers
from nerve.data import simulate as simulation
from nerve.data.common_space import naming_resampling, resample_folder
from nerve.data.export import export_cohort
from nerve.data.parcellation import parcellation_names
from nerve.data.quality import check_cohort
from nerve.data.readers.ids import counted
from nerve.data.resampling import FARTHEST

atlas = typer.Typer(help="The built-in parcellations.", no_args_is_help=True)
app.add_typer(atlas, name="atlas")

_MOST_TARGETS = 40  # columns of the participants table that `check` shows on the screen


@atlas.command("list")
def _atlas_list() -> None:
    """List the built-in parcellations.

    Example: `nerve atlas list`
    """
    for name in parcellation_names():
        parcellation = nerve.load_parcellation(name)
        networks = "no networks"
        if parcellation.n_networks > 1:
            networks = f"{parcellation.n_networks:>2} networks"
        say(f"{name:<16} {parcellation.n_regions:>4} regions  {networks}")
    say(
        "\nAdd +aseg19 for the 19 subcortical regions that CBIG appends. "
        "Any other atlas: a TSV with label, network."
    )


@atlas.command("show")
def _atlas_show(
    name: Annotated[str, argument("A built-in name, or a TSV with columns label, network.")],
    regions: Annotated[bool, option("Print every region as TSV.", "--regions")] = False,
) -> None:
    """Show the networks of a parcellation, its patches, or every region.

    Example: `nerve atlas show schaefer400-17 --regions > regions.tsv`
    """
    parcellation = nerve.load_parcellation(name)
    if regions:
        say(parcellation.to_table().to_csv(sep="\t", index=False, na_rep="n/a").rstrip())
        return
    patching = nerve.Patching.from_parcellation(parcellation)
    say(
        f"{parcellation.name}: {parcellation.n_regions} regions, {parcellation.n_networks} networks"
    )
    for group, members in zip(patching.group_names, patching.members, strict=True):
        say(f"  {group:<16} {len(members):>4} regions")
    say(
        f"{patching.n_patches} patches, {patching.n_entries:,} packed entries, "
        f"largest {patching.sizes.max():,}"
    )


_SIMULATE = {
    "subjects": (300, "Participants."),
    "parcellation": ("schaefer100-17", "A built-in name, or a TSV."),
    "seen_in": (
        str,
        "Another atlas in which the scans are read, coarser than --parcellation: a name or a TSV.",
    ),
    "timepoints": (200, "Volumes of a scan."),
    "seed": (0, "Seed of participants and scans."),
    "structure_seed": (0, "Seed of what cohorts share: factors and network pairs."),
    "name": ("", "Name of the cohort; by default that of the folder."),
    "sites": (3, "Number of scanners."),
    "effect": (0.6, "True correlation of the targets with their factors."),
    "session": (1, "The visit: another one scans the same participants again."),
    "family_size": (1, "Siblings per family."),
    "timeseries": (True, "Keep time series; without them it is faster."),
    "dtype": ("float32", "float32, or float16 for very large cohorts."),
    "scores": (False, "Also write truth_scores.tsv."),
    "overwrite": (False, "Replace an existing folder."),
}


@app.command()
@with_table(_SIMULATE)
def simulate(
    out: Annotated[str, argument("The new cohort folder.")], options: dict[str, Any]
) -> None:
    """Simulate a cohort with planted effects; truth.json, written beside it, says which.

    Example: `nerve simulate cohort-a --subjects 300 --seed 1`
    """
    n_participants = options.pop("subjects")
    keeps_timeseries = options.pop("timeseries")
    options["keep_timeseries"] = keeps_timeseries
    options["targets"] = simulation.default_targets(options.pop("effect"))
    options["name"] = as_utf8(options["name"] or Path(out).resolve().name)
    folder = simulation.simulate_to(out, n_participants, **options)
    series = f", time series of {options['timepoints']} volumes" if keeps_timeseries else ""
    regions = options["seen_in"] or options["parcellation"]
    say(f"{folder}: {n_participants} participants, {regions}{series}")
    for target, relation in read_json(folder / "truth.json")["targets"].items():
        pairs = ", ".join("–".join(pair) for pair in relation["pairs"]) or "no network pair"
        say(f"  {target:<14} true r {relation['true_r']:.2f}  on {pairs}")


_INGEST = {
    "format": (
        "auto",
        "auto, xcpd, bep017, cpac, cbig, abide, conn, giga_h5, cifti, nifti, ukb, edges or plain.",
    ),
    "parcellation": (
        str,
        "Regions that the cohort shall have: a name (`nerve atlas list`) or a TSV.",
    ),
    "order": (str, "Order of the rows in files without labels, if not that of --parcellation."),
    "participants": (
        str,
        "Table of participants, joined by id: TSV, CSV, Excel, Parquet, Feather, SPSS or Stata.",
    ),
    "sheet": (str, "Name or number of the sheet, where that table is an Excel workbook."),
    "columns": (str, "Our column names for theirs: age=AGE_AT_SCAN,site=SITE_ID, or a YAML file."),
    "na_values": (str, "Codes for missing values: 999,-9, or of one column: sex=9."),
    "visit": (str, "Take the row of this visit, where the table has several rows per participant."),
    "sessions": (str, "File of two columns: session of the scans, session of the table."),
    "id_map": (str, "File of two columns: id of the data, id of the table."),
    "values": ("auto", "What matrices hold: r, z (Fisher), or auto (as they prove)."),
    "measure": (
        str,
        "What matrices measure: pearson, partial, covariance, coherence, mutual_information, "
        "streamlines, fractional_anisotropy or other.",
    ),
    "unfolding": ("auto", "Triangle of vectors, row by row: upper, lower or auto."),
    "id_pattern": (
        str,
        "Regular expression whose group `id` is the participant, e.g. `'(?P<id>S[0-9]+)'`.",
    ),
    "kind": ("pearson", "FC of time series: pearson, partial or ledoit_wolf."),
    "data": ("auto", "Where there are both: fc (matrices), series, or auto."),
    "fd_threshold": (float, "Leave out volumes with more framewise displacement (mm) than this."),
    "session": (str, "Read only this session."),
    "task": (str, "Read only this task."),
    "repeats": ("average", "Several scans of a participant: average, first, last or refuse."),
    "missing": (
        "drop-participant",
        "Regions without data: drop-participant, drop-region or impute-group-mean.",
    ),
    "outside": ("drop", "Regions that the parcellation does not have: drop or keep."),
    "header": ("auto", "The first line of a text file names its columns: yes, no or auto."),
    "index": ("auto", "The first column of a text file names its rows: yes, no or auto."),
    "atlas": (str, "Which atlas, where a source holds several."),
    "variable": (str, "Name of the array in .mat or .npz files."),
    "ids": (str, "File with the ids of an array of all participants, one per line."),
    "atlas_image": (str, "Label image, for sources that hold voxels."),
    "denoise": (str, "Confound strategy, for sources that hold voxels."),
    "timeseries": (False, "Keep time series in the cohort."),
    "dtype": ("float32", "float32 or float16."),
    "jobs": (int, "Processes; as many as there are cores by default."),
    "name": (str, "What reports call the cohort."),
    "strict": (False, "Stop at a participant who cannot be read."),
    "allow_exclusions": (False, "Go on although more than a fifth of the scans are left out."),
    "overwrite": (False, "Replace an existing cohort folder."),
}


@app.command()
@with_table(_INGEST)
def ingest(
    source: Annotated[str, argument("A folder or a file of matrices or time series.")],
    out: Annotated[str, argument("The cohort folder to write.")],
    options: dict[str, Any],
    dry_run: Annotated[
        bool, option("Only show what would become of every file; write nothing.", "--dry-run")
    ] = False,
) -> None:
    """Read matrices or time series of any known layout into one aligned, checked cohort folder.

    Example: `nerve ingest derivatives/xcp_d cohorts/pnc --parcellation schaefer400-17
    --participants participants.tsv`
    """
    # an exception, so that unfinished files are removed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    from nerve.data.readers.names import AmbiguousParticipants

    try:
        if dry_run:
            preview = readers.preview(source, **options)
            _show_table(preview.files, source)
            _say_plan(preview.lines)
            if preview.refusal is not None:
                raise preview.refusal
            say(
                f"{len(preview.files)} rows, {counted(preview.n_participants)}; nothing was written"
            )
            return
        report = readers.ingest(source, out, **options)
    except AmbiguousParticipants as error:
        _show_table(error.table, source)
        raise
    _say_plan(report.plan)
    stated = "; ".join(line.evidence for line in report.plan)
    for text in report.notes:
        if text not in stated or text.startswith(readers.base.WARNING):
            note(f"  {text}")
    say(
        f"{report.path}: {counted(report.n_participants)} written, "
        f"{len(report.exclusions)} left out"
    )
    if len(report.exclusions):
        say(f"{report.path}/exclusions.tsv says who was left out and why")
    say(f"Next: nerve check {report.path}")


@app.command()
def check(
    cohort: Annotated[str, argument("A cohort folder.")],
    out: Annotated[
        str | None, output("Write the table, and who would be dropped, to this TSV.")
    ] = None,
    model: Annotated[
        str | None, option(f"{MODEL}. The cohort is compared with its training cohort.")
    ] = None,
    figure: Annotated[
        str | None, output("Draw that comparison to this .svg, .png or .pdf.")
    ] = None,
    overwrite: Annotated[
        bool, option("Replace the files that --out and --figure name.", "--overwrite")
    ] = False,
) -> None:
    """Check a cohort: missing data, motion, values, duplicates, region order.

    The exit code is 1 when it is not usable.

    Example: `nerve check cohorts/pnc --out quality.tsv`
    """
    opened = nerve.Cohort.load(cohort)
    quality = check_cohort(opened)
    if model is not None:
        with naming_resampling([cohort]):
            likeness = nerve.NERVE.from_pretrained(model, device="cpu").likeness(opened)
        quality = quality.with_model(likeness)
        if figure is not None and likeness.compared is not None:
            draw_likeness(figure, likeness, opened.name, overwrite=overwrite)
    elif figure is not None:
        raise typer.BadParameter("--figure draws the comparison with a model: name it with --model")
    is_target = quality.table["check"].str.startswith("target ")
    is_shown = ~is_target | (is_target.cumsum() <= _MOST_TARGETS)
    _show_table(quality.table[is_shown], cohort)
    n_hidden = (~is_shown).sum()
    if n_hidden:
        remedy = "" if out else ": --out writes what is in them"
        say(f"and {n_hidden:,} more columns of the participants table{remedy}")
    for participant, reason in quality.drops.itertuples(index=False):
        say(f"would drop {participant}: {reason}")
    if out is not None:
        quality.write(out, overwrite=overwrite)
        say(f"{out}: written")
    say("usable" if quality.usable else f"not usable: {', '.join(quality.faults)}")
    if not quality.usable:
        raise typer.Exit(1)


@app.command()
def resample(
    cohort: Annotated[str, argument("A cohort folder.")],
    out: Annotated[str, argument("The cohort folder to write.")],
    parcellation: Annotated[
        str, option("The regions to have: a name of `nerve atlas list`, or a TSV.")
    ],
    width: Annotated[
        float | None, option("Width of the Gaussian in mm; by default from the spacing of both.")
    ] = None,
    farthest: Annotated[
        float, option("Refuse a region whose nearest source is farther than this, in mm.")
    ] = FARTHEST,
    images: Annotated[
        tuple[str, str] | None,
        option("Label images of the cohort's atlas and of the new one: weights by overlap."),
    ] = None,
    figure: Annotated[
        str | None, output("Draw both group means and the weights to this .svg, .png or .pdf.")
    ] = None,
    overwrite: Annotated[bool, option("Replace existing files.", "--overwrite")] = False,
) -> None:
    """Carry a cohort to the regions of another atlas, and say how well that went.

    FC is averaged by weights that follow from MNI centres; OUT/resampling.tsv has a row per region.

    Example: `nerve resample cohorts/abide cohorts/abide-200 --parcellation schaefer200-17`
    """
    report = resample_folder(
        cohort,
        out,
        parcellation,
        width=width,
        farthest=farthest,
        images=images,
        overwrite=overwrite,
    )
    say(f"{out}: {counted(report.n_participants)}. {report.words}")
    if report.round_trip is not None:
        say(f"Carried there and back, the group mean correlates by {report.round_trip:.3f}.")
    if figure is not None and report.pair is not None:
        draw_common_space(figure, report.pair, overwrite=overwrite)


@app.command()
def export(
    cohort: Annotated[str, argument("A cohort folder.")],
    out: Annotated[str, argument("The folder to write; it must not exist, or be empty.")],
    format: Annotated[str, option("bids: BIDS connectivity matrices (BEP017).")] = "bids",
) -> None:
    """Write a cohort in the format of others; `nerve ingest` reads it back.

    Example: `nerve export cohorts/pnc pnc_bids --format bids`
    """
    opened = nerve.Cohort.load(cohort)
    export_cohort(opened, out, format)
    say(f"{out}: {counted(len(opened))}, {opened.parcellation.name}")
    if opened.timeseries is not None:
        say("The time series are not part of the format and were not written.")


def _say_plan(lines: Sequence[readers.PlanLine]) -> None:
    """Print the plan of an ingest: each decision, and what shows it."""
    say("Plan:")
    for line in lines:
        evidence = f" [{line.evidence}]" if line.evidence else ""
        say(f"  {line.topic}: {line.decision}{evidence}")


def _show_table(table: Any, title: str) -> None:
    """Print a whole table; verdicts in colour."""
    from rich.table import Table

    shown = Table(box=None, title=title, title_justify="left", pad_edge=False)
    for heading in table.columns:
        shown.add_column(str(heading), overflow="fold")
    styles = {"warning": "yellow", "suspicious": "yellow", "not usable": "bold red", "note": "cyan"}
    for row in table.itertuples(index=False):
        style = styles.get(getattr(row, "verdict", ""), "")
        shown.add_row(*map(str, row), style=style)
    Console(width=None if sys.stdout.isatty() else 160).print(shown)
