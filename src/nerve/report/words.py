"""What was run, in words: paragraphs for a methods section, and what to cite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nerve.checks import listed
from nerve.cohort import Cohort
from nerve.evaluation.features import FeatureSet
from nerve.evaluation.people import prepare_people
from nerve.evaluation.protocol_text import protocol_text
from nerve.evaluation.settings import Settings

SUPERVISED = ("brainnetcnn", "braingnn", "brainnettf")


@dataclass(frozen=True)
class Citation:
    """A work to cite, as text and as BibTeX."""

    key: str
    text: str
    bibtex: str


def _article(key: str, authors: str, title: str, journal: str, year: int, volume: str, pages: str) -> Citation:
    text = f"{authors.replace(' and others', ' et al.').replace(' and ', ', ')} ({year}). {title}. {journal} {volume}"
    fields = {"author": authors, "title": f"{{{title}}}", "journal": journal, "year": year}
    fields |= {"volume": volume, "pages": pages.replace("–", "--")}
    return Citation(key, f"{text}, {pages}.", _bibtex("article", key, fields))


def _bibtex(kind: str, key: str, fields: Mapping[str, object]) -> str:
    body = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"@{kind}{{{key},\n{body}\n}}"


_TITLE = "Network-Aware Bilinear Tokenization for Brain Functional Connectivity Representation Learning"
_AUTHORS = "Milecki, Leo and Hu, Qingyu and Jafrasteh, Bahram and Sabuncu, Mert R. and Zhao, Qingyu"
_ATLAS = "Local-global parcellation of the human cerebral cortex from intrinsic functional connectivity MRI"
_NETWORKS = "The organization of the human cerebral cortex estimated by intrinsic functional connectivity"
_RIDGE = (
    "Deep neural networks and kernel regression achieve comparable accuracies for functional connectivity prediction "
    "of behavior and demographics"
)
_FDR = "Controlling the false discovery rate: a practical and powerful approach to multiple testing"
_COMBAT = "Adjusting batch effects in microarray expression data using empirical Bayes methods"
_SERIES_B = "Journal of the Royal Statistical Society: Series B"
_METHOD = Citation(
    "nerve",
    f"Milecki, L., Hu, Q., Jafrasteh, B., Sabuncu, M. R., Zhao, Q. {_TITLE}.",
    _bibtex("unpublished", "nerve", {"author": _AUTHORS, "title": f"{{{_TITLE}}}", "note": "The method"}),
)
CITATIONS = {
    "nerve": _METHOD,
    "schaefer": _article("schaefer2018", "Schaefer, A. and others", _ATLAS, "Cerebral Cortex", 2018, "28", "3095–3114"),
    "yeo": _article(
        "yeo2011", "Yeo, B. T. T. and others", _NETWORKS, "Journal of Neurophysiology", 2011, "106", "1125–1165"
    ),
    "ridge": _article("he2020", "He, T. and others", _RIDGE, "NeuroImage", 2020, "206", "116276"),
    "fdr": _article("benjamini1995", "Benjamini, Y. and Hochberg, Y.", _FDR, _SERIES_B, 1995, "57", "289–300"),
    "combat": _article(
        "johnson2007", "Johnson, W. E. and Li, C. and Rabinovic, A.", _COMBAT, "Biostatistics", 2007, "8", "118–127"
    ),
}


def experiment_words(config: Mapping[str, Any], cohorts: Mapping[str, Cohort]) -> list[str]:
    """Paragraphs on what was compared, how encoders were trained and how each cohort was evaluated."""
    paragraphs = [_compared(config)]
    if trained := _trained(config):
        paragraphs.append(trained)
    protocols = {name: _protocol(config, name, cohort) for name, cohort in cohorts.items()}
    if not protocols:
        return paragraphs
    if not _alike(config):
        return paragraphs + [block for blocks in protocols.values() for block in blocks]
    paragraphs += [f"{name}: {blocks[0]}" for name, blocks in protocols.items()]
    return paragraphs + next(iter(protocols.values()))[1:]


def _protocol(config: Mapping[str, Any], name: str, cohort: Cohort) -> list[str]:
    """How one cohort was evaluated: who and which folds first, then features, ridge and statistics."""
    people, settings = prepare_people(cohort, _settings(config, config["cohorts"][name]))
    return evaluation_words(protocol_text(settings, people, _sets(config), people.notes))


def evaluation_words(markdown: str) -> list[str]:
    """Paragraphs of a protocol without its heading."""
    blocks = [block.strip() for block in markdown.split("\n\n")]
    return [block for block in blocks if block and not block.startswith("#")]


def run_words(config: Mapping[str, Any]) -> list[str]:
    """A paragraph on a single training run."""
    if not config:
        return []
    options = (config.get("parameters") or {}).get("options", {})
    data = config.get("data") or {}
    parcellation = (config.get("parcellation") or {}).get("name", "its parcellation")
    cohorts = f" of {listed(data['cohorts'], most=20)}" if data.get("cohorts") else ""
    who = f" on {data['n_training']:,} people{cohorts}" if data.get("n_training") else ""
    who += f", with {data['n_validation']:,} more held out," if data.get("n_validation") else ""
    said = f"{config.get('method', 'The encoder')} was trained{who} in {parcellation}"
    if "tokenizer" in options:
        said += f" with the {options['tokenizer']} tokenizer, {options.get('mask_ratio', 0):.0%} of the patches masked"
    if "epochs" in options:
        said += f", for {options['epochs']} epochs in batches of {options.get('batch_size')}"
    return [said + f" (seed {(config.get('parameters') or {}).get('seed', 0)})."]


def citations(config: Mapping[str, Any], kind: str) -> list[Citation]:
    """What this run rests on."""
    keys = ["nerve"]
    if "schaefer" in str(config.get("parcellation", "schaefer")):
        keys += ["schaefer", "yeo"]
    if kind != "run":
        keys += ["ridge", "fdr"]
    if (config.get("protocol") or {}).get("harmonise") or (config.get("settings") or {}).get("combat"):
        keys.append("combat")
    return [CITATIONS[key] for key in keys]


def _compared(config: Mapping[str, Any]) -> str:
    rows = [str(row.get("label") or row["method"]) for row in config.get("methods", [])]
    cohorts = [str(about.get("label") or name) for name, about in (config.get("cohorts") or {}).items()]
    seeds = config.get("seeds", [0])
    simulated = [str(name) for name, about in (config.get("cohorts") or {}).items() if about.get("simulate")]
    said = f"We compared {listed(rows, most=20)} on {listed(cohorts, most=20)}, in the region order of "
    said += f"{config.get('parcellation')}. Networks were trained with {len(seeds)} seed{'s' * (len(seeds) > 1)} "
    said += f"({listed(seeds)})."
    if simulated:
        said += f" Simulated, with a known answer: {listed(simulated, most=20)}."
    return said


def _trained(config: Mapping[str, Any]) -> str:
    rows = [row for row in config.get("methods", []) if row["method"] not in ("raw", "pca", "covariates", *SUPERVISED)]
    if not rows:
        return ""
    pooled = [name for name, about in (config.get("cohorts") or {}).items() if about.get("pretrain", True)]
    held = [name for name in config.get("cohorts") or {} if name not in pooled]
    said = f"Encoders ({listed(dict.fromkeys(str(r.get('label') or r['method']) for r in rows), most=20)}) were "
    said += f"pretrained without labels on the pooled people of {listed(pooled, most=20)}"
    said += f"; {listed(held)} took no part (out of domain)" if held else ""
    return said + "."


def _settings(config: Mapping[str, Any], about: Mapping[str, Any]) -> Settings:
    protocol = config.get("protocol") or {}
    covariates = about.get("covariates")
    return Settings(
        targets=tuple(about["targets"]),
        covariates=tuple(protocol.get("covariates", ("age", "sex")) if covariates is None else covariates),
        groups=about.get("groups"),
        site=about.get("site"),
        combat=bool(protocol.get("harmonise") and about.get("site")),
        n_folds=protocol.get("folds", 10),
        n_inner_folds=protocol.get("inner_folds", 5),
        kernel=protocol.get("kernel", "correlation"),
        n_components=protocol.get("pca_components", 256),
        seed=protocol.get("seed", 42),
        n_bootstrap=protocol.get("n_bootstrap", 1000),
        n_permutations=protocol.get("n_permutations", 0),
        pretrain_scope=protocol.get("pretrain_scope", "all"),
    )


def _sets(config: Mapping[str, Any]) -> list[FeatureSet]:
    scope = (config.get("protocol") or {}).get("pretrain_scope", "all")
    sets = []
    for row in config.get("methods", []):
        name, method = str(row.get("label") or row["method"]), row["method"]
        if method in ("raw", "pca", "covariates"):
            sets.append(FeatureSet(name, method, pretrain_scope="none"))
        elif method in SUPERVISED:
            sets.append(FeatureSet(name, "model", pretrain_scope="train_folds"))
        else:
            sets.append(FeatureSet(name, "matrix", np.empty((0, 0)), pretrain_scope=scope))
    return sets


def _alike(config: Mapping[str, Any]) -> bool:
    """Whether all cohorts are evaluated alike, so that one text serves them all."""
    kept = ("covariates", "groups", "site")
    return len({str([about.get(name) for name in kept]) for about in config["cohorts"].values()}) == 1
