"""`nerve-bids BIDS_DERIVATIVES OUT participant|group`: nerve as a BIDS App.

    OUT/dataset_description.json, atlas-A_dseg.tsv …                   as `nerve export --format bids` (BEP017)
    OUT/sub-01/func/sub-01_atlas-A_meas-M_relmat.dense.tsv            participant: FC
    OUT/sub-01/func/sub-01_atlas-A_desc-nerve_embedding.tsv           participant, with --model: the embedding
    OUT/group/cohort, embeddings.tsv, results/report.html             group: what was made of them

Participants may be run one at a time, in any order and at the same time; `group` reads what they wrote.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nerve
from nerve._utils.errors import listed, problem
from nerve._utils.files import claim, read_tsv, write_tsv
from nerve.cli.common import refusing, say
from nerve.data.export import write_bids_people
from nerve.data.readers import ingest
from nerve.data.readers.ids import counted

EMBEDDING = "desc-nerve_embedding.tsv"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the app: a `NerveError` becomes one sentence and exit code 1."""
    chosen = _parser().parse_args(arguments)
    with refusing("nerve-bids"):
        {"participant": participant, "group": group}[chosen.level](chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "nerve-bids", description="FC, embeddings and their evaluation as a BIDS App."
    )
    parser.add_argument(
        "derivatives", type=Path, help="derivatives that `nerve ingest` reads (XCP-D, fMRIPrep …)"
    )
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument("level", choices=["participant", "group"])
    parser.add_argument(
        "--participant-label",
        nargs="+",
        default=[],
        type=_label,
        help="only these; sub- is optional",
    )
    parser.add_argument(
        "--parcellation", help="regions to have: a name of `nerve atlas list` or a TSV"
    )
    parser.add_argument(
        "--model", help="participant: embed with it; group: is the cohort like its training cohort?"
    )
    parser.add_argument(
        "--participants", help="group: table of participants; by default the derivatives' own"
    )
    parser.add_argument(
        "--targets", default="", help="group: columns to predict, separated by commas"
    )
    parser.add_argument(
        "--covariates", default="", help="group: columns regressed from the targets"
    )
    return parser


def _label(word: str) -> str:
    return word.removeprefix("sub-")


def participant(chosen: argparse.Namespace) -> None:
    """FC, and with a model the embedding, of some or all participants."""
    import pandas as pd

    labels = chosen.participant_label
    with tempfile.TemporaryDirectory(prefix="nerve-") as folder:
        source = _only(chosen.derivatives, labels, Path(folder)) if labels else chosen.derivatives
        cohort = nerve.read_cohort(source, parcellation=chosen.parcellation)
    values = None if chosen.model is None else _encoder(chosen.model, cohort).transform(cohort)
    written = write_bids_people(cohort, claim(chosen.out))
    if values is not None:
        table = pd.DataFrame(values).add_prefix("dim")
        for row, path in enumerate(written.values()):
            named = path.with_name(f"{path.name.partition('_meas-')[0]}_{EMBEDDING}")
            write_tsv(named, table.iloc[[row]])
    said = "" if values is None else ", with embeddings"
    say(f"{chosen.out}: {counted(len(written))} written{said}")


def _only(derivatives: Path, labels: list[str], folder: Path) -> Path:
    """A folder of links to the files of some participants, and to those that are nobody's."""
    wanted, found = {f"sub-{label}" for label in labels}, set()
    for path in derivatives.rglob("*"):
        parts = path.relative_to(derivatives).parts
        of = {part.partition("_")[0].partition(".")[0] for part in parts if part.startswith("sub-")}
        if of <= wanted and not path.is_dir():
            found |= of
            link = folder.joinpath(*parts)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path.resolve())
    if wanted - found:
        lacking = listed(sorted(wanted - found))
        raise problem(derivatives, f"there are no files of {lacking} (--participant-label)")
    return folder


def _encoder(model: str, cohort: Any) -> Any:
    """A trained model; a cohort that is not like its training cohort is warned about."""
    from nerve.methods.runs import compared

    encoder = nerve.NERVE.from_pretrained(model)
    compared(encoder, cohort)
    return encoder


def group(chosen: argparse.Namespace) -> None:
    """A cohort of what was written for participants; with targets their evaluation and its report."""
    from nerve.experiments import commands

    place = chosen.out / "group"
    own = chosen.derivatives / "participants.tsv"
    table = chosen.participants or (own if own.is_file() else None)
    with tempfile.TemporaryDirectory(prefix="nerve-") as folder:
        labels = chosen.participant_label or [
            _label(one.name) for one in chosen.out.glob("sub-*") if one.is_dir()
        ]
        source = _only(chosen.out, labels, Path(folder))
        name = chosen.derivatives.resolve().name
        options = {"format": "bep017", "participants": table, "name": name, "overwrite": True}
        report = ingest(source, place / "cohort", **options)
    if chosen.model is not None:
        _encoder(chosen.model, nerve.Cohort.load(report.path))
    features = {"raw": "raw", "pca": "pca"}
    if embeddings := _gathered(chosen.out, place / "embeddings.tsv", labels):
        features["NERVE"] = str(embeddings)
    say(f"{report.path}: {counted(report.n_participants)}")
    if chosen.targets:
        protocol = nerve.Protocol(targets=chosen.targets, covariates=chosen.covariates)
        commands.evaluate(str(report.path), features, protocol, str(place / "results"))


def _gathered(out: Path, table: Path, labels: list[str]) -> Path | None:
    """The embeddings of participants in one table, if there are any."""
    import pandas as pd

    found = {
        label: path
        for label in labels
        for path in sorted((out / f"sub-{label}").glob(f"func/*_{EMBEDDING}"))
    }
    if not found:
        return None
    rows = pd.concat([read_tsv(path) for path in found.values()], ignore_index=True)
    write_tsv(table, pd.concat([pd.Series(list(found), name="participant_id"), rows], axis=1))
    return table
