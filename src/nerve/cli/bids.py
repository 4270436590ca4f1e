"""`nerve-bids BIDS_DERIVATIVES OUT participant|group`: nerve as a BIDS App.

    OUT/dataset_description.json, atlas-A_dseg.tsv …         as `nerve export` writes them (BEP017)
    OUT/sub-01/func/sub-01_atlas-A_meas-M_relmat.dense.tsv   participant: FC
    OUT/sub-01/func/sub-01_atlas-A_desc-nerve_embedding.tsv  participant, with --model: embedding
    OUT/group/cohort, embeddings.tsv, results/report.html    group: made from the above

Participants may be run one at a time, in any order and at the same time; `group` reads what they
wrote.
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
from nerve.cli.common import errors_as_sentences, say
from nerve.data.export import write_bids_participants
from nerve.data.readers import ingest
from nerve.data.readers.ids import counted

_EMBEDDING = "desc-nerve_embedding.tsv"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the app: a `NerveError` becomes one sentence and exit code 1."""
    options = _parser().parse_args(arguments)
    with errors_as_sentences("nerve-bids"):
        if options.level == "participant":
            _participant(options)
        else:
            _group(options)


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


def _label(text: str) -> str:
    return text.removeprefix("sub-")


def _participant(options: argparse.Namespace) -> None:
    """Write FC, and with a model the embedding, of the chosen or of all participants."""
    import pandas as pd

    with tempfile.TemporaryDirectory(prefix="nerve-") as folder:
        source = options.derivatives
        if options.participant_label:
            source = _link_participants(source, options.participant_label, Path(folder))
        cohort = nerve.read_cohort(source, parcellation=options.parcellation)
    embeddings = None
    if options.model is not None:
        embeddings = _load_and_compare(options.model, cohort).transform(cohort)
    paths = write_bids_participants(cohort, claim(options.out))
    if embeddings is not None:
        table = pd.DataFrame(embeddings).add_prefix("dim")
        for number, path in enumerate(paths.values()):
            prefix = path.name.partition("_meas-")[0]
            write_tsv(path.with_name(f"{prefix}_{_EMBEDDING}"), table.iloc[[number]])
    addition = "" if embeddings is None else ", with embeddings"
    say(f"{options.out}: {counted(len(paths))} written{addition}")


def _group(options: argparse.Namespace) -> None:
    """Write a cohort of all participants; with targets, also an evaluation and its report."""
    group_folder = options.out / "group"
    participants = options.participants
    if participants is None:
        own_table = options.derivatives / "participants.tsv"
        participants = own_table if own_table.is_file() else None
    labels = options.participant_label
    if not labels:
        labels = [_label(path.name) for path in options.out.glob("sub-*") if path.is_dir()]
    with tempfile.TemporaryDirectory(prefix="nerve-") as folder:
        report = ingest(
            _link_participants(options.out, labels, Path(folder)),
            group_folder / "cohort",
            format="bep017",
            participants=participants,
            name=options.derivatives.resolve().name,
            overwrite=True,
        )
    if options.model is not None:
        _load_and_compare(options.model, nerve.Cohort.load(report.path))
    features = {"raw": "raw", "pca": "pca"}
    embeddings = group_folder / "embeddings.tsv"
    if _gather_embeddings(options.out, embeddings, labels):
        features["NERVE"] = str(embeddings)
    say(f"{report.path}: {counted(report.n_participants)}")
    if options.targets:
        from nerve.experiments import commands

        protocol = nerve.Protocol(targets=options.targets, covariates=options.covariates)
        results = str(group_folder / "results")
        commands.run_evaluation(str(report.path), features, protocol, results)


def _link_participants(derivatives: Path, labels: list[str], folder: Path) -> Path:
    """Fill a folder with links to the files of these participants and to files of the data set."""
    wanted = {f"sub-{label}" for label in labels}
    linked: set[str] = set()
    for path in derivatives.rglob("*"):
        if path.is_dir():
            continue
        parts = path.relative_to(derivatives).parts
        subjects = set()
        for part in parts:
            if part.startswith("sub-"):
                subjects.add(part.partition("_")[0].partition(".")[0])
        if subjects <= wanted:
            linked |= subjects
            link = folder.joinpath(*parts)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path.resolve())
    missing = sorted(wanted - linked)
    if missing:
        raise problem(derivatives, f"there are no files of {listed(missing)} (--participant-label)")
    return folder


def _load_and_compare(model: str, cohort: Any) -> Any:
    """A trained model; warns if the cohort is not like its training cohort."""
    from nerve.methods.runs import compared

    encoder = nerve.NERVE.from_pretrained(model)
    compared(encoder, cohort)
    return encoder


def _gather_embeddings(out: Path, table: Path, labels: list[str]) -> bool:
    """Write the embeddings of participants into one table; False if there are none."""
    import pandas as pd

    rows: dict[str, Any] = {}
    for label in labels:
        for path in sorted((out / f"sub-{label}").glob(f"func/*_{_EMBEDDING}")):
            rows[label] = read_tsv(path)
    if not rows:
        return False
    values = pd.concat(list(rows.values()), ignore_index=True)
    ids = pd.Series(list(rows), name="participant_id")
    write_tsv(table, pd.concat([ids, values], axis=1))
    return True
