"""The methods paragraph in words, ready for a manuscript, generated from the protocol that ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from nerve.checks import listed
from nerve.evaluation.covariates import MISSING_RULE
from nerve.evaluation.people import People
from nerve.evaluation.rows import NULL, SCOPES, line_label, lines_of, rows_of
from nerve.protocol import Protocol

_KERNELS = {
    "correlation": "the Pearson correlation between two participants' feature vectors",
    "linear": "the inner product of features z-scored with training-fold statistics, divided by their number",
    "cosine": "the cosine between two participants' feature vectors",
    "rbf": "a radial basis function whose width is the median distance between training participants",
}
_ROWS = {
    "raw": "the vectorised upper triangle of the connectivity matrix",
    "pca": "up to {n_components} principal components of the connectivity matrix",
    "covariates": "the covariates alone, predicting the target with no covariate removed",
    "features": "given features",
}
_KINDS = {"supervised": "a network trained inside each training fold", "reference": "a reference representation"}


def participants_summary(people: People) -> dict[str, Any]:
    """What the text says of a cohort's participants, as plain values."""
    targets: dict[str, dict[str, Any]] = {}
    for name, values in people.targets[people.tested].items():
        about = {"n": int(values.notna().sum()), "classes": list(people.classes.get(str(name), ())) or None}
        if str(name) in people.whole:
            column = targets.setdefault(people.whole[str(name)], {"n": about["n"], "classes": []})
            column["classes"].append(people.classes[str(name)][1])
        else:
            targets[str(name)] = about
    folds = people.folds[people.folds >= 0]
    elsewhere = {"cohort": people.trained_on, "n": int((~people.tested).sum())} if people.trained_on else None
    return {"cohort": people.cohort, "n": int(people.tested.sum()), "n_folds": len(set(folds.tolist())),
            "targets": targets, "trained_on": elsewhere, "notes": list(people.notes)}  # fmt: skip


def protocol_text(protocol: Protocol, summary: Mapping[str, Any], rows: pd.DataFrame) -> str:
    """Markdown: how one cohort was evaluated.

    Parameters
    ----------
    summary : mapping
        What `participants_summary` gives.
    rows : DataFrame
        rows.tsv, with the scope of each row on this cohort.
    """
    lines = lines_of(rows[rows["kind"] != NULL]) if len(rows) else rows
    parts = [
        f"# How {summary['cohort']} was evaluated",
        " ".join([_who(summary), _folds(protocol, summary), _covariates(protocol), _harmonisation(protocol)]).strip(),
        _features(protocol, lines),
        _ridge(protocol, lines),
        _statistics(protocol) + _several_classes(summary),
    ]
    if summary["notes"]:
        parts.append("Notes of this run:\n\n" + "\n".join(f"- {note}" for note in summary["notes"]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _who(summary: Mapping[str, Any]) -> str:
    words = []
    for name, about in summary["targets"].items():
        classes = about["classes"] or []
        contrast = f", {classes[1]} against {classes[0]}" if len(classes) == 2 else ""
        each = f", {len(classes)} classes, each against all others: {', '.join(classes)}" if len(classes) > 2 else ""
        words.append(f"{name} (n = {about['n']}{contrast or each})")
    return f"We predicted {'; '.join(words)} from features of {summary['n']} participants."


def _several_classes(summary: Mapping[str, Any]) -> str:
    several = [name for name, about in summary["targets"].items() if len(about["classes"] or ()) > 2]
    if not several:
        return ""
    return (
        f" Each class of {listed(several)} was predicted against all others by the same decomposition; scores "
        "of the whole are means over its classes, and its balanced accuracy is that of naming the class whose "
        "prediction is highest above the mean of the other folds."
    )


def _folds(protocol: Protocol, summary: Mapping[str, Any]) -> str:
    n_folds = summary["n_folds"]
    if summary.get("trained_on"):
        there, n = summary["trained_on"]["cohort"], summary["trained_on"]["n"]
        return (
            f"Everything was fitted on {n} participants of {there} (λ by inner folds there, coefficients of "
            f"covariates, whatever features learn) and applied to those of {summary['cohort']}, who trained no model: "
            "their mean is not known to it either, and r_low_cv, r_high_cv are r_low, r_high."
        )
    if protocol.leave_site_out:
        return (
            f"Whole sites ({protocol.site}) were left out in {n_folds} folds: no model saw the site it was tested on."
        )
    text = f"Participants were divided into {n_folds} folds, stratified on up to five quantile bins of every target"
    text += f", with members of one {protocol.groups} kept in one fold" if protocol.groups else ""
    text += f", repeated {protocol.n_repeats} times" if protocol.n_repeats > 1 else ""
    return f"{text} (seed {protocol.seed}); all rows used the same folds."


def _covariates(protocol: Protocol) -> str:
    if not protocol.covariates:
        return "No covariates were removed."
    what = "targets and features" if protocol.regress_features else "targets"
    motion = f" ({protocol.motion} is head motion)" if protocol.motion in protocol.covariates else ""
    verb = "was" if len(protocol.covariates) == 1 else "were"
    return (
        f"{listed(protocol.covariates)}{motion} {verb} removed from the {what} by linear regression with an intercept "
        f"fitted on the training fold, categories one-hot; {MISSING_RULE}."
    )


def _harmonisation(protocol: Protocol) -> str:
    if not protocol.combat:
        return ""
    kept = f", preserving {listed(protocol.preserve)} (never a target)" if protocol.preserve else ""
    whom = f" on those with {protocol.combat_on} among" if protocol.combat_on else " on"
    return f"Features were harmonised over {protocol.site} with ComBat fitted{whom} the training fold{kept}."


def _features(protocol: Protocol, lines: pd.DataFrame) -> str:
    if lines.empty:
        return ""
    words = ["Rows:", ""]
    for line in rows_of(lines):
        what = _ROWS.get(line.method, _KINDS.get(line.kind, "embeddings of an encoder trained without labels"))
        what = what.format(n_components=protocol.n_components)
        preset = f", preset {line.preset}" if line.preset else ""
        scope = f"; {SCOPES[line.scope]} (pretrain_scope: {line.scope})" if line.scope in SCOPES else ""
        words.append(f"- **{line_label(line)}**: {what}{preset}{scope}.")
    return "\n".join(words)


def _ridge(protocol: Protocol, lines: pd.DataFrame) -> str:
    if all(line.kind == "supervised" or line.method == "covariates" for line in rows_of(lines)):
        return ""
    return (
        f"Features were read by kernel ridge regression with an unpenalised bias; the kernel was "
        f"{_KERNELS[protocol.kernel]}. For each target the penalty λ was chosen from {len(protocol.lambdas)} values "
        f"between {min(protocol.lambdas):g} and {max(protocol.lambdas):g} by the predictive coefficient of "
        f"determination, averaged over {protocol.n_inner_folds} inner folds of the training fold "
        "(λ = 0 is the limit λ → 0)."
    )


def _statistics(protocol: Protocol) -> str:
    unit = f"whole {protocol.groups} groups" if protocol.groups else "participants"
    text = (
        "Accuracy is Pearson's r between observed values (after covariates) and predictions concatenated over test "
        "folds; the mean r within folds, the predictive coefficient of determination (R², around the mean of the other "
        "folds) and the mean absolute error are given beside it, and for two-class targets the area "
        "under the ROC curve and the balanced accuracy (cut at the mean of the other folds). "
        f"Intervals are 95 % percentile intervals over {protocol.n_bootstrap:,} bootstrap resamples of {unit} with "
        "their predictions held fixed (r_low, r_high). Participants also train the models of other folds, which such "
        "resampling cannot see: r_low_cv and r_high_cv are √2 as wide, to cover 0 in about 95 % of cohorts where "
        "nothing can be predicted. Methods were compared by a two-sided paired bootstrap on the same resamples, with "
        "Benjamini–Hochberg q values over targets."
    )
    if protocol.n_permutations:
        inside = f" and {protocol.site}" if protocol.site else ""
        whole = f", whole {protocol.groups} groups of equal size together" if protocol.groups else ""
        text += (
            f" Permutation p values, (1 + #{{null ≥ observed}}) / (1 + n), come from {protocol.n_permutations:,} "
            f"permutations of the target (after covariates) within folds{inside}{whole}, with λ chosen anew for each."
        )
    return text
