"""Results folders as `nerve evaluate` and `nerve experiment` write them: random numbers, a second, no torch."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.files import claim, write_json, write_tsv
from nerve.core.patching import Patching
from nerve.data.cohort import Cohort
from nerve.data.parcellation import load_parcellation
from nerve.evaluation.protocol import Protocol
from nerve.evaluation.results import Results
from nerve.evaluation.rows import Row, rows_table

PARCELLATION = "schaefer100-7"


def line(line: str, method: str, label: str, kind: str, seeds: int = 1, **more: Any) -> list[Row]:
    """The rows of one line, one per seed."""
    return [
        Row(f"{line}-{seed}", line, method, label, kind, seed=seed, **more) for seed in range(seeds)
    ]


def rows() -> list[Row]:
    """Three reference rows and a method swept over a setting, with two seeds."""
    swept = [
        line(f"nerve{share}", "nerve", "NERVE", "self-supervised", 2, group="learned", variant=f"mask_ratio={share}",
             settings={"mask_ratio": share}, swept="mask_ratio", title="NERVE", preset="small",
             scope="all (alpha); other_people (gamma)", trained_on="alpha (40)", width=256)
        for share in (0.25, 0.5)
    ]  # fmt: skip
    return [
        *line("covariates", "covariates", "Covariates only", "reference", group="reference"),
        *line("raw", "raw", "Raw FC", "reference", group="reference"),
        *line("pca", "pca", "PCA of FC", "reference", group="reference", scope="train_folds"),
        *swept[0],
        *swept[1],
    ]


@dataclass
class Made:
    """What a made-up results folder holds."""

    cohorts: dict[str, int] = field(default_factory=lambda: {"alpha": 40, "gamma": 30})
    targets: list[str] = field(default_factory=lambda: ["p_factor", "iq"])
    rows: list[Row] = field(default_factory=rows)
    title: str = "A made-up comparison"
    layout: str = "methods"
    ids: str = "sub-{cohort}{i:04d}"
    warning: str = "sub-alpha0003: one region has no data in /data/study/sub-alpha0003/fc.tsv. See `nerve check`."
    interpretation: bool = True  # drawing on the brain takes seconds
    stored: bool = True  # whether the cohorts lie in the folder
    n_permutations: int = 40


def write_folder(folder: Path, made: Made | None = None) -> Path:
    """A complete results folder."""
    made = made or Made()
    claim(folder)
    rng = np.random.default_rng(0)
    cohorts = {name: make_cohort(name, n, made, rng) for name, n in made.cohorts.items()}
    if made.stored:
        for name, cohort in cohorts.items():
            cohort.save(folder / "cohorts" / name)
    results(made, cohorts, rng).save(folder)
    write_tsv(folder / "runs.tsv", write_runs(folder, made, rng))
    if made.interpretation:
        write_interpretation(folder / "interpretation", made, rng)
    return folder


def results(made: Made, cohorts: dict[str, Cohort], rng: np.random.Generator) -> Results:
    """Every table of the folder."""
    real = [row for row in made.rows if row.kind != "null"]
    predictions = pd.concat([predict(cohort, row, t, rng) for cohort in cohorts.values() for t in made.targets
                             for row in real], ignore_index=True)  # fmt: skip
    scores = pd.DataFrame(
        [score(key, part, made) for key, part in predictions.groupby(PLACE, sort=False)]
    )
    permuted = [
        (c, t, row)
        for c in made.cohorts
        for t in made.targets
        for row in made.rows
        if row.kind == "null"
    ]
    null = [
        {"cohort": c, "target": t, "row": row.row, "r": rng.normal(0, 0.05)}
        for c, t, row in permuted
    ]
    nulls = [pd.DataFrame(dict(zip(PLACE, key, strict=True)) | {"r": rng.normal(0, 0.1, made.n_permutations)})
             for key, _ in predictions.groupby(PLACE, sort=False)]  # fmt: skip
    folds = [pd.DataFrame({"cohort": name, "participant": one.participants["participant_id"], "repeat": 0,
                           "fold": np.arange(len(one)) % 2}) for name, one in cohorts.items()]  # fmt: skip
    return Results(
        about=about(made, cohorts),
        rows=rows_table(made.rows),
        cohorts=cohorts_table(made, cohorts),
        folds=pd.concat(folds),
        predictions=predictions,
        scores=pd.concat([scores, pd.DataFrame(null)], ignore_index=True) if null else scores,
        comparisons=comparisons(scores, made),
        nulls=pd.concat(nulls, ignore_index=True),
        curves=curves(scores),
    )


def curves(scores):
    """Learning curves that rise from a third of each score to all of it, over three draws."""
    parts = [
        scores[PLACE].assign(
            labels=k, draw=draw, metric="r", score=scores["r"] * share + 0.01 * draw
        )
        for k, share in ((25, 0.3), (50, 0.6), (100, 1.0))
        for draw in range(3)
    ]
    return pd.concat(parts, ignore_index=True)


PLACE = ["cohort", "target", "row"]
COMPARED = ["cohort", "target", "line_a", "line_b", "among", "metric", "score_a", "score_b", "difference",
            "difference_low", "difference_high", "p", "q", "tie", "n", "best_two"]  # fmt: skip


def about(made: Made, cohorts: dict[str, Cohort]) -> dict[str, Any]:
    """protocol.json."""
    protocol = Protocol(targets=made.targets, covariates=["age", "sex"], motion="none", n_folds=2, n_bootstrap=20,
                        n_components=64, pretrain_scope="all")  # fmt: skip
    targets = {target: {"n": 30, "classes": None} for target in made.targets}
    return {
        "title": made.title, "kind": "experiment", "layout": made.layout, "parcellation": PARCELLATION,
        "command": "nerve experiment 'my file.yaml' --out out/made",
        "protocols": {name: asdict(protocol) for name in cohorts},
        "participants": {name: {"cohort": name, "n": len(one), "n_folds": 2, "targets": targets, "notes": []}
                         for name, one in cohorts.items()},
        "target_labels": {name: {} for name in cohorts}, "seeds": [0, 1],
        "versions": {"numpy": "2.0"}, "code": "c0de", "data": {name: f"f00{name}" for name in cohorts},
    }  # fmt: skip


def cohorts_table(made: Made, cohorts: dict[str, Cohort]) -> pd.DataFrame:
    """cohorts.tsv."""
    same = {"n_regions": 100, "parcellation": PARCELLATION, "simulated": False}
    rows = [{"cohort": name, "label": name.capitalize(), "n": len(one), "fingerprint": one.fingerprint} | same
            for name, one in cohorts.items()]  # fmt: skip
    return pd.DataFrame(rows).assign(
        pretrained_on=["yes" if i == 0 else "no" for i in range(len(rows))]
    )


def predict(cohort: Cohort, row: Row, target: str, rng: np.random.Generator) -> pd.DataFrame:
    """Predictions that are partly right."""
    observed = cohort.participants[target].to_numpy(float)
    place = {
        "cohort": cohort.name,
        "target": target,
        "row": row.row,
        "participant": cohort.participants["participant_id"],
    }
    values = {"fold": np.arange(len(cohort)) % 2, "observed": observed, "observed_raw": observed}
    return pd.DataFrame(
        place | values | {"predicted": 0.4 * observed + rng.normal(size=len(cohort))}
    )


def score(key: tuple[str, str, str], part: pd.DataFrame, made: Made) -> dict[str, Any]:
    """One row of scores.tsv."""
    row = next(row for row in made.rows if row.row == key[2])
    first = key[0] == next(iter(made.cohorts))  # the cohort that encoders are trained on
    scope = ("all" if first else "other_people") if row.trained_on else row.scope
    r = float(np.corrcoef(part["observed"], part["predicted"])[0, 1]) if len(part) > 2 else 0.1
    margins = {
        "r_low": r - 0.1,
        "r_high": r + 0.1,
        "r_low_cv": r - 0.14,
        "r_high_cv": r + 0.14,
        "r_half_width": 0.1,
    }
    more = {"r_fold_mean": r, "r2": r**2, "mae": 0.8, "p": 0.02, "q": 0.04, "r_target_motion": 0.1}
    more |= {
        "r_prediction_motion": 0.2,
        "scope": scope,
        "trained_on": row.trained_on,
        "adapted": row.adapted,
    }
    more |= {"n": len(part), "n_folds": 2}
    more |= {"p_permuted_networks": 0.03} if any(row.kind == "null" for row in made.rows) else {}
    return dict(zip(PLACE, key, strict=True)) | {"r": r} | margins | more


def comparisons(scores: pd.DataFrame, made: Made) -> pd.DataFrame:
    """Every two methods, and the best one against each reference; p is 0.01 for the best two."""
    line_of = {row.row: row.line for row in made.rows}
    kind_of = {
        row.line: "covariates" if row.method == "covariates" else row.kind for row in made.rows
    }
    found = []
    means = (
        scores.assign(line=scores["row"].map(line_of))
        .groupby(["cohort", "target", "line"], sort=False)["r"]
        .mean()
    )
    for (cohort, target), part in means.groupby(level=[0, 1], sort=False):
        ranked = part.droplevel([0, 1]).sort_values(ascending=False)
        methods = [one for one in ranked.index if kind_of[one] not in ("reference", "covariates")]
        pairs = [(a, b, "methods") for i, a in enumerate(methods) for b in methods[i + 1 :]]
        pairs += [
            (methods[0], b, "reference")
            for b in ranked.index
            if kind_of[b] == "reference" and methods
        ]
        for a, b, among in pairs:
            best = pairs[0] == (a, b, among) and among == "methods"
            values = [
                ranked[a],
                ranked[b],
                ranked[a] - ranked[b],
                -0.1,
                0.2,
                0.01 if best else 0.3,
                0.3,
                False,
                30,
                best,
            ]
            found.append(
                dict(zip(COMPARED, [cohort, target, a, b, among, "r", *values], strict=True))
            )
    return with_holding_columns(pd.DataFrame(found, columns=COMPARED))


def with_holding_columns(compared: pd.DataFrame) -> pd.DataFrame:
    """The interval, p and q that hold: of the same numbers as the paper's, which are wrong nowhere here."""
    return compared.assign(
        difference_low_cv=compared["difference_low"],
        difference_high_cv=compared["difference_high"],
        p_cv=compared["p"],
        q_cv=compared["q"],
    )


def make_cohort(name: str, n: int, made: Made, rng: np.random.Generator) -> Cohort:
    """Networks that show, participants who differ."""
    parcellation = load_parcellation(PARCELLATION)
    same = np.array([[a == b for b in parcellation.networks] for a in parcellation.networks])
    noise = rng.normal(0, 0.15, (n, 100, 100))
    fc = np.clip(np.where(same, 0.4, -0.05) + (noise + noise.transpose(0, 2, 1)) / 2, -1, 1)
    fc[:, np.arange(100), np.arange(100)] = 1
    table = pd.DataFrame({"participant_id": [made.ids.format(cohort=name, i=i) for i in range(n)]})
    table["age"], table["sex"] = rng.uniform(8, 22, n).round(1), rng.choice(["F", "M"], n)
    table["site"], table["mean_fd"] = rng.choice(["here", "there"], n), rng.lognormal(-2, 0.4, n)
    table[made.targets] = rng.normal(size=(n, len(made.targets)))
    reasons = [
        "sub-gone: too much motion",
        f"the same matrix as participant {table['participant_id'].iloc[0]}",
    ]
    left_out = pd.DataFrame({"participant_id": ["sub-gone", "sub-twice"], "reason": reasons})
    return Cohort(fc, table, parcellation, name=name, exclusions=left_out)


def write_runs(folder: Path, made: Made, rng: np.random.Generator) -> pd.DataFrame:
    """Manifests, histories and a mean reconstruction; one run has failed."""
    found = []
    for row in made.rows:
        places = [("predict", name) for name in made.cohorts]
        for kind, cohort in (
            [("encode", ""), *places] if row.kind in ("self-supervised", "null") else places
        ):
            run = {
                "id": f"{len(found):04d}",
                "kind": kind,
                "line": row.line,
                "cohort": cohort,
                "target": "",
                "status": "done",
            }
            found.append(
                run | {"run": f"{kind} {row.label} {cohort}", "seconds": 1.5, "reason": ""}
            )
            write_run(folder / "runs" / found[-1]["id"], found[-1], made, rng)
    failed = {
        "id": "ffff",
        "kind": "train",
        "line": "gone",
        "cohort": "alpha",
        "target": "",
        "status": "failed",
    }
    return pd.DataFrame(
        [*found, failed | {"run": "train BrainGNN alpha", "seconds": 0.1, "reason": made.warning}]
    )


def write_run(folder: Path, run: dict[str, Any], made: Made, rng: np.random.Generator) -> None:
    """One run."""
    manifest = {
        "id": run["id"],
        "kind": run["kind"],
        "line": run["line"],
        "status": "done",
        "seconds": 1.5,
    }
    write_json(
        folder / "manifest.json",
        manifest | {"warnings": [made.warning], "result": {"parameters": 1234}},
    )
    if run["kind"] == "predict":
        return
    epochs = np.arange(1, 9)
    losses = {
        "training_loss": 60.0 ** (1 - epochs / 4),
        "validation_loss": 60.0 ** (1 - epochs / 4) + 0.05,
    }
    write_tsv(
        folder / "history.tsv", pd.DataFrame({"epoch": epochs, **losses})
    )  # spans a logarithmic axis
    patching = Patching.from_parcellation(load_parcellation(PARCELLATION))
    original = patching.unpack(rng.normal(0, 0.2, patching.n_entries))
    masked = np.where(patching.group_of[:, None] == patching.group_of, np.nan, original)
    pictures = {"original": original, "masked": masked, "reconstructed": original * 0.8}
    np.savez_compressed(folder / "reconstruction.npz", **pictures, group_of=patching.group_of)
    settings = {
        "view": "fc",
        "patching": "networks",
        "tokenizer": "bilinear",
        "mask_ratio": 0.5,
        "dim": 64,
    }
    write_json(folder / "config.json", {"parameters": settings})
    errors = {
        "model": 0.03,
        "group_mean": 0.04,
        "patch_mean": 0.06,
        "n_people": 12,
        "example_n": 12,
    }
    errors |= dict.fromkeys(("model_se", "group_mean_se", "patch_mean_se"), 0.002)
    write_json(folder / "reconstruction.json", errors | {"networks": list(patching.group_names), "example_r": 0.7,
                                                "example_r_group_mean": 0.6})  # fmt: skip


def write_interpretation(folder: Path, made: Made, rng: np.random.Generator) -> None:
    """Tables as `nerve.interpret` writes them."""
    parcellation = load_parcellation(PARCELLATION)
    names = np.array(parcellation.network_names)
    agreed = {"stability": 0.8, "n_seeds": 2}
    regions = parcellation.to_table().rename(columns={"label": "region"})
    write_tsv(
        folder / "network_weights.tsv",
        regions.assign(weight=rng.uniform(0, 1, len(regions)), **agreed),
    )
    pairs = np.stack(np.triu_indices(len(names)), axis=1)
    parts = []
    for target in made.targets:
        drop = rng.normal(0, 0.01, len(pairs))
        bounds = {
            "drop_low": drop - 0.01,
            "drop_high": drop + 0.01,
            "pattern_low": -0.1,
            "pattern_high": 0.1,
            "r_low": 0.1,
        }
        part = {
            "target": target,
            "network_a": names[pairs[:, 0]],
            "network_b": names[pairs[:, 1]],
            "drop": drop,
        }
        parts.append(
            pd.DataFrame(part | bounds | {"pattern": rng.normal(size=len(pairs))} | agreed)
        )
    write_tsv(folder / "importance.tsv", pd.concat(parts))
    n = len(names) + 1
    tokens = np.array(["CLS", *names])
    places = {"from": np.repeat(tokens, n), "to": np.tile(tokens, n), "seed": 0, "head": "mean"}
    layers = [
        pd.DataFrame(places | {"layer": k, "ratio": rng.lognormal(0, 0.3, n * n)})
        for k in ("rollout", "1")
    ]
    write_tsv(folder / "attention.tsv", pd.concat(layers).assign(**agreed))
