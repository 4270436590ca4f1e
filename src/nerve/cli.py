"""What users type. Each command parses, calls one function of the package and says what was written where.

Heavy imports (torch, pandas) happen inside the commands, so that `nerve --help` answers at once.
"""

from __future__ import annotations

import os
import sys
import warnings
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
