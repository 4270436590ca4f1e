"""Commands about models: pretrain, embed, models, pack, interpret, methods."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

import nerve
from nerve._utils.signals import TrainingStopped
from nerve.cli.common import (
    MODEL,
    app,
    argument,
    draw_likeness,
    note,
    option,
    output,
    protocol_table,
    say,
    with_table,
)
from nerve.data.common_space import (
    bring_together,
    describe_meeting,
    meeting_sentences,
    naming_resampling,
)

models = typer.Typer(help="Trained models, by name, folder or archive.", no_args_is_help=True)
app.add_typer(models, name="models")

# fields of the protocol that are options of `nerve interpret`: they decide what is explained
_INTERPRET_FIELDS = (
    "targets",
    "covariates",
    "groups",
    "n_folds",
    "n_repeats",
    "kernel",
    "n_bootstrap",
    "seed",
)
# role of a method → what it learns, in words
_ROLES = {
    "supervised": "learns with a target, inside each fold",
    "self-supervised": "learns without labels",
    "reference": "reference row, without labels",
}


@app.command()
def pretrain(
    cohorts: Annotated[
        list[str], argument("Cohort folders, pooled in the region order of the first.")
    ],
    out: Annotated[str, output("The run folder to write.")],
    preset: Annotated[str | None, option("default, paper or small.")] = None,
    config: Annotated[str | None, option("A YAML file of settings.")] = None,
    assignments: Annotated[
        list[str] | None, option("One setting, as key=value; repeat it.", "--set")
    ] = None,
    resume: Annotated[
        bool, option("Go on from the last checkpoint in the run folder.", "--resume")
    ] = False,
    device: Annotated[str | None, option("auto, cpu, cuda, cuda:1 or mps.")] = None,
    seed: Annotated[
        int | None, option("Seed of split, initial weights, order and masks.", min=0)
    ] = None,
    log: Annotated[
        str | None,
        option("tensorboard: also write the training curves for it, into the run folder."),
    ] = None,
    parcellation: Annotated[
        str | None, option("Resample all cohorts to these regions: a built-in name, or a TSV.")
    ] = None,
) -> None:
    """Train NERVE on one or several cohorts.

    Ctrl-C or SIGTERM write a checkpoint; `--resume` goes on from it. Cohorts of other regions are
    refused without --parcellation.

    Example: `nerve pretrain cohorts/ucla cohorts/stages --out runs/first --preset small --set
    epochs=100`

    On several processes: `torchrun --nproc-per-node 2 -m nerve pretrain …`
    """
    import logging

    from nerve.interpret.pretraining import describe_run
    from nerve.methods.runs import pretrain as pretrain_and_save

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        with naming_resampling(cohorts, "--parcellation"):
            encoder = pretrain_and_save(
                cohorts,
                out,
                preset=preset,
                config=config,
                assignments=assignments or [],
                resume=resume,
                device=device,
                seed=seed,
                log=log,
                parcellation=parcellation,
            )
    except TrainingStopped as stopped:
        note(f"nerve: {stopped}", typer.colors.YELLOW)
        raise typer.Exit(128 + stopped.signal_number) from None
    if os.environ.get("RANK", "0") != "0":  # of several processes, the first describes the run
        return
    if len(encoder.history_):  # empty where the file of a resumed run was lost
        last = encoder.history_.iloc[-1]
        n_steps = int(last["step"])
        if n_steps:
            loss = last["training_loss"]
            say(f"{out}: {n_steps} steps, training loss {loss:.4g}, best at {encoder.best_step_}")
        else:
            say(f"{out}: untrained, with its initial weights")
    opened = [nerve.Cohort.load(cohort) for cohort in cohorts]
    if parcellation is not None:
        opened = bring_together(opened, parcellation)
        for sentence in meeting_sentences(describe_meeting(opened)):
            note(sentence)
    errors = describe_run(encoder, opened, out)
    if errors:
        ratio = errors["model"] / errors["group_mean"]
        say(f"masked patches of held-out participants: {ratio:.3f} of the error of the group mean")
        doubt = encoder.save_masked_error(Path(out), ratio)
        if doubt:
            note(doubt, typer.colors.YELLOW)


@app.command()
def embed(
    run: Annotated[str, argument(f"{MODEL}.")],
    cohort: Annotated[str, argument("The cohort folder to embed.")],
    out: Annotated[str, argument("A .tsv (participant_id, dim0 …) or a .npy.")],
    pooling: Annotated[
        str | None, option("pca, mean, cls or tokens (needs .npy); the model's own by default.")
    ] = None,
    device: Annotated[str, option("auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    overwrite: Annotated[bool, option("Replace an existing file.", "--overwrite")] = False,
    resample: Annotated[
        bool, option("Resample a cohort of other regions to those of the model.", "--resample")
    ] = False,
) -> None:
    """Write the embeddings of a cohort.

    Its regions are matched by label; missing ones are named, and other regions are refused without
    --resample. A warning, and a figure beside OUT, say if the cohort does not look like the
    training cohort of the model.

    Example: `nerve embed runs/first cohorts/ucla ucla.tsv --pooling mean`
    """
    from nerve.methods.runs import embed_file

    figure = Path(out).with_name(f"{Path(out).stem}_likeness.svg")

    def show_likeness(likeness: Any, name: str) -> None:
        if figure.exists():  # the user has not named it, so it is not replaced
            note(f"{figure}: exists and is not replaced, so no figure of the difference is drawn")
        else:
            draw_likeness(figure, likeness, name)

    with naming_resampling([cohort], "--resample"):
        values = embed_file(
            run,
            cohort,
            out,
            pooling=pooling,
            device=device,
            overwrite=overwrite,
            on_difference=show_likeness,
            resample=resample,
        )
    shape = " x ".join(map(str, values.shape))
    say(f"{out}: {shape} ({pooling})" if pooling else f"{out}: {shape}")


@models.command("list")
def _models_list() -> None:
    """List the trained models that come with this installation.

    Example: `nerve models list`
    """
    from nerve.methods.pretrained import packaged_models

    packaged = packaged_models()
    for name, path in packaged.items():
        say(f"{name:<24} {path.stat().st_size / 2**20:.1f} MB")
    if not packaged:
        say("No trained model comes with this installation.")
        say("A model is also given as a folder of `nerve pretrain` or an archive of `nerve pack`.")


@models.command("show")
def _models_show(
    model: Annotated[str, argument(f"{MODEL}.")],
) -> None:
    """Show the card of a model: what it is, what it was trained on, and how to use it.

    Example: `nerve models show runs/first`
    """
    from nerve.methods.pretrained import model_card

    say(model_card(model).rstrip())


@app.command()
def pack(
    run: Annotated[str, argument("The folder of a trained model.")],
    archive: Annotated[str, argument("The .zip to write.")],
    half: Annotated[bool, option("Numbers in half precision: a smaller file.", "--half")] = False,
    overwrite: Annotated[bool, option("Replace an existing archive.", "--overwrite")] = False,
) -> None:
    """Write a trained model as one file to share: weights, settings and card.

    `nerve embed` reads it.

    Example: `nerve pack runs/first first.zip`
    """
    from nerve.methods.pretrained import pack as write_archive

    path = write_archive(run, archive, half=half, overwrite=overwrite)
    say(f"{path}: {path.stat().st_size / 2**20:.1f} MB")
    say(
        "Weights can carry information on the participants of the training: share them under the "
        "terms of their data."
    )


@app.command()
@with_table(protocol_table(_INTERPRET_FIELDS))
def interpret(
    runs: Annotated[
        list[str], argument("The folder of a trained model; several that differ in the seed.")
    ],
    cohort: Annotated[str, argument("The cohort folder.")],
    options: dict[str, Any],
    out: Annotated[
        str | None, output("Where to write interpretation/; the first run by default.")
    ] = None,
    pooling: Annotated[
        str | None, option("pca, mean, cls or tokens; the model's own by default.")
    ] = None,
    device: Annotated[str, option("auto, cpu, cuda, cuda:1 or mps.")] = "auto",
) -> None:
    """Say what encoders rely on: regions, attention, and network pairs behind a prediction.

    Give runs with different seeds to learn how stable the maps are.

    Example: `nerve interpret runs/seed0 runs/seed1 cohorts/ucla --targets age --out results/ucla`
    """
    encoders = [nerve.interpret.load_encoder(run, device) for run in runs]
    if pooling:
        for encoder in encoders:
            encoder.set_params(pooling=pooling)
    folder = out or runs[0]
    opened = nerve.Cohort.load(cohort)
    with naming_resampling([cohort]):
        tables = nerve.interpret.interpret_to(folder, encoders, opened, **options)
    if options["targets"]:
        most_important = tables["importance"].groupby("target", sort=False).head(3)
        for row in most_important.itertuples():
            say(
                f"{row.target:<20} {row.network_a}–{row.network_b}  r {row.r:+.3f}, "
                f"hidden {row.r_occluded:+.3f}, "
                f"drop {row.drop:+.3f} [{row.drop_low:+.3f}, {row.drop_high:+.3f}]"
            )
    if len(encoders) < 2:
        note("note: one run; give runs with other seeds to learn how stable its maps are.")
    say(f"{folder}/interpretation: {', '.join(tables)} (TSV) and stability.json")


@app.command()
def methods(
    parcellation: Annotated[
        str, option("Count parameters for this parcellation.")
    ] = "schaefer400-17",
    preset: Annotated[str | None, option("Only this preset: paper, default or small.")] = None,
    tsv: Annotated[bool, option("Print a table for other programs.", "--tsv")] = False,
) -> None:
    """List the methods: what each needs, its size by preset, its paper, and what we changed.

    Example: `nerve methods`
    """
    from nerve.methods import method_table

    table = method_table(parcellation, preset)
    if tsv:
        say(table.to_csv(sep="\t", index=False).rstrip())
        return
    for _, rows in table.groupby("method", sort=False):
        first = rows.iloc[0]
        role = _ROLES[first["role"]]
        say(f"{first['method']:<12} {first['title']}: needs {first['needs']}; {role}")
        for row in rows[rows["parameters"] > 0].to_dict("records"):
            view = "" if row["view"] == "fc" else f", {row['view']} view"
            say(f"{'':<12} {row['parameters']:,} parameters ({row['preset']}{view})")
        say(f"{'':<12} accepts {first['measures']}")
        say(f"{'':<12} {first['citation']}")
        if first["adapted"]:
            say(f"{'':<12} ours: {first['adapted']}")
    say(f"\nParameters that are trained, by preset, with {parcellation}.")
