"""Folders as `nerve experiment` writes them, made from random numbers in a second and without torch."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from nerve.cohort import Cohort
from nerve.evaluation.statistics import all_comparisons, motion_table, score_table
from nerve.files import write_json, write_text, write_tsv
from nerve.parcellation import load_parcellation
from nerve.patching import Patching


@dataclass
class Made:
    """What a made-up experiment is called."""

    cohorts: dict[str, int] = field(default_factory=lambda: {"alpha": 40, "gamma": 30})
    targets: list[str] = field(default_factory=lambda: ["p_factor", "iq"])
    methods: dict[str, list[str]] = field(
        default_factory=lambda: {"Raw FC": [""], "NERVE": ["mask_ratio=0.25", "mask_ratio=0.5"]}
    )
    title: str = "A made-up comparison"
    ids: str = "sub-{cohort}{i:04d}"
    warning: str = "sub-alpha0003: one region has no data in /data/study/sub-alpha0003/fc.tsv"
    seeds: tuple[int, ...] = (0, 1)
    interpretation: bool = True  # drawing on the brain takes seconds


def write_experiment(folder: Path, made: Made | None = None) -> Path:
    """A complete experiment folder."""
    made = made or Made()
    rng = np.random.default_rng(0)
    people = {name: make_cohort(name, n, made, rng) for name, n in made.cohorts.items()}
    for i, cohort in enumerate(people.values()):
        cohort.save(folder / "data" / str(i))
    write_text(folder / "experiment.yaml", yaml.safe_dump(config(made, folder), sort_keys=False))
    write_json(folder / "inputs.json", {"cohorts": {name: c.fingerprint for name, c in people.items()}, "code": "0"})
    predictions = pd.concat([predict(cohort, made, rng) for cohort in people.values()], ignore_index=True)
    scores = score_table(predictions, n_bootstrap=20)
    motion = pd.concat([c.participants.set_index("participant_id")["mean_fd"] for c in people.values()])
    scores = scores.merge(motion_table(predictions, motion), how="left").assign(p=0.02, q=0.04)
    write_tsv(folder / "predictions.tsv", predictions)
    write_tsv(folder / "scores.tsv", scores)
    comparisons = all_comparisons(predictions, 20)
    if len(comparisons):
        write_tsv(folder / "comparisons.tsv", comparisons)
    write_tsv(folder / "runs.tsv", write_runs(folder, made, rng))
    if made.interpretation:
        write_interpretation(folder / "interpretation", made, rng)
    return folder


def write_interpretation(folder: Path, made: Made, rng: np.random.Generator) -> None:
    """Tables as `nerve.interpret` writes them."""
    parcellation = load_parcellation("schaefer100-7")
    names = np.array(parcellation.network_names)
    agreed = {"stability": 0.8, "n_seeds": 2}
    regions = parcellation.to_table().rename(columns={"label": "region"})
    write_tsv(folder / "network_weights.tsv", regions.assign(weight=rng.uniform(0, 1, len(regions)), **agreed))
    pairs = np.stack(np.triu_indices(len(names)), axis=1)
    parts = []
    for target in made.targets:
        drop = rng.normal(0, 0.01, len(pairs))
        bounds = {"drop_low": drop - 0.01, "drop_high": drop + 0.01}
        part = {"target": target, "network_a": names[pairs[:, 0]], "network_b": names[pairs[:, 1]], "drop": drop}
        parts.append(pd.DataFrame(part | bounds | {"pattern": rng.normal(size=len(pairs))} | agreed))
    write_tsv(folder / "importance.tsv", pd.concat(parts))
    n = len(names) + 1
    tokens = np.array(["CLS", *names])
    places = {"from": np.repeat(tokens, n), "to": np.tile(tokens, n), "seed": 0, "head": "mean"}
    layers = [pd.DataFrame(places | {"layer": k, "ratio": rng.lognormal(0, 0.3, n * n)}) for k in ("rollout", "1", "2")]
    write_tsv(folder / "attention.tsv", pd.concat(layers).assign(**agreed))


def config(made: Made, folder: Path) -> dict[str, Any]:
    """The experiment's file."""
    return {
        "name": "made",
        "title": made.title,
        "layout": "methods",
        "parcellation": "schaefer100-7",
        "seeds": list(made.seeds),
        "cohorts": {
            name: {"path": str((folder / "data" / str(i)).resolve()), "targets": made.targets, "pretrain": not i}
            for i, name in enumerate(made.cohorts)
        },
        "methods": [{"method": "raw" if "Raw" in m else "nerve", "label": m, "group": m[:1]} for m in made.methods],
        "protocol": {"folds": 2, "inner_folds": 2, "covariates": ["age", "sex"], "n_bootstrap": 20},
    }


def make_cohort(name: str, n: int, made: Made, rng: np.random.Generator) -> Cohort:
    """Networks that show, people who differ."""
    parcellation = load_parcellation("schaefer100-7")
    same = np.array([[a == b for b in parcellation.networks] for a in parcellation.networks])
    noise = rng.normal(0, 0.15, (n, 100, 100))
    fc = np.clip(np.where(same, 0.4, -0.05) + (noise + noise.transpose(0, 2, 1)) / 2, -1, 1)
    fc[:, np.arange(100), np.arange(100)] = 1
    table = pd.DataFrame({"participant_id": [made.ids.format(cohort=name, i=i) for i in range(n)]})
    table["age"], table["sex"] = rng.uniform(8, 22, n).round(1), rng.choice(["F", "M"], n)
    table["site"], table["mean_fd"] = rng.choice(["here", "there"], n), rng.lognormal(-2, 0.4, n)
    for target in made.targets:
        table[target] = rng.normal(size=n)
    reasons = ["sub-gone: too much motion", f"the same matrix as participant {table['participant_id'].iloc[0]}"]
    left_out = pd.DataFrame({"participant_id": ["sub-gone", "sub-twice"], "reason": reasons})
    return Cohort(fc, table, parcellation, name=name, exclusions=left_out)


def predict(cohort: Cohort, made: Made, rng: np.random.Generator) -> pd.DataFrame:
    """Predictions that are partly right."""
    parts = []
    ids = cohort.participants["participant_id"]
    for target in made.targets:
        observed = cohort.participants[target].to_numpy(float)
        for method, variants in made.methods.items():
            for variant in variants:
                for seed in made.seeds if variant else (0,):
                    guess = 0.4 * observed + rng.normal(size=len(ids))
                    place = {"cohort": cohort.name, "target": target, "method": method, "variant": variant}
                    values = {"fold": np.arange(len(ids)) % 2, "observed": observed, "predicted": guess}
                    parts.append(pd.DataFrame({"participant": ids, **values, "observed_raw": observed}))
                    parts[-1] = parts[-1].assign(**place, seed=seed)
    return pd.concat(parts, ignore_index=True)


def write_runs(folder: Path, made: Made, rng: np.random.Generator) -> pd.DataFrame:
    """Manifests, histories, nulls and an example of a reconstruction; one run has failed."""
    rows = []
    for method, variants in made.methods.items():
        for variant in variants:
            for kind, cohort in [("encode", ""), *(("probe", name) for name in made.cohorts)]:
                if kind == "encode" and not variant:
                    continue
                label = f"{kind} " + " · ".join(word for word in (method, variant, cohort) if word)
                rows.append({"id": f"{len(rows):04d}", "kind": kind, "run": label, "status": "done", "seconds": 1.5})
                write_run(folder / "runs" / f"{len(rows) - 1:04d}", rows[-1], made, rng)
    failed = {"id": "ffff", "kind": "train", "run": "train BrainGNN · alpha", "status": "failed", "seconds": 0.1}
    return pd.DataFrame([*rows, failed | {"reason": made.warning}])


def write_run(folder: Path, row: dict[str, Any], made: Made, rng: np.random.Generator) -> None:
    """One run."""
    manifest = {"kind": row["kind"], "label": row["run"], "status": "done", "seconds": 1.5, "warnings": [made.warning]}
    write_json(folder / "manifest.json", manifest | {"versions": {"numpy": "2.0"}, "result": {"parameters": 1234}})
    if row["kind"] == "probe":
        write_tsv(folder / "null.tsv", pd.DataFrame({t: rng.normal(0, 0.1, 40) for t in made.targets}))
        return
    epochs = np.arange(1, 9)
    losses = {"training_loss": 1 / epochs, "validation_loss": 1 / epochs + 0.05}
    write_tsv(folder / "history.tsv", pd.DataFrame({"epoch": epochs, **losses}))
    patching = Patching.from_parcellation("schaefer100-7")
    original = patching.unpack(rng.normal(0, 0.2, patching.n_entries))
    masked = np.where(patching.group_of[:, None] == patching.group_of, np.nan, original)
    pictures = {"original": original, "masked": masked, "reconstructed": original * 0.8}
    np.savez_compressed(folder / "reconstruction.npz", **pictures, group_of=patching.group_of)
    errors = {"model": 0.03, "group_mean": 0.04, "patch_mean": 0.06, "model_se": 0.002, "n_people": 6}
    write_json(folder / "reconstruction.json", errors | {"networks": list(patching.group_names), "example_r": 0.7})
