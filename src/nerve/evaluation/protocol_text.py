"""The methods paragraph in words, ready for a manuscript, generated from the settings that ran."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nerve.checks import listed
from nerve.evaluation.covariates import MISSING_RULE
from nerve.evaluation.features import FeatureSet
from nerve.evaluation.people import People
from nerve.evaluation.settings import Settings

_KERNELS = {
    "correlation": "the Pearson correlation between two people's feature vectors",
    "linear": "the inner product of features z-scored with training-fold statistics, divided by their number",
    "cosine": "the cosine between two people's feature vectors",
    "rbf": "a radial basis function whose width is the median distance between training people",
}
_SETS = {
    "raw": "the vectorised upper triangle of the connectivity matrix",
    "pca": "up to {n_components} principal components of the connectivity matrix, fitted on the training folds",
    "covariates": "the covariates alone, predicting the target with no covariate removed",
    "model": "a model trained inside each training fold",
    "matrix": "given features",
}
SCOPES = {
    "all": "its encoder was pretrained, without labels, on all people including those tested",
    "train_folds": "everything it learned comes from training folds",
    "other_people": "its encoder was pretrained on other people",
    "none": "nothing was pretrained",
    "not stated": "whether an encoder saw the tested people was not stated",
}


def protocol_text(settings: Settings, people: People, sets: Sequence[FeatureSet], notes: Sequence[str] = ()) -> str:
    """Markdown: one paragraph on features and prediction, one on statistics, and the notes of the run."""
    parts = [
        f"# How {people.cohort} was evaluated",
        " ".join([_who(people), _folds(settings, people), _covariates(settings), _harmonisation(settings)]).strip(),
        _features(settings, sets),
        _ridge(settings, sets),
        _statistics(settings),
    ]
    if notes:
        parts.append("Notes of this run:\n\n" + "\n".join(f"- {note}" for note in notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def _who(people: People) -> str:
    words = []
    for name, values in people.targets.items():
        zero, one = people.classes.get(str(name), ("", ""))
        classes = f", {one} against {zero}" if one else ""
        words.append(f"{name} (n = {values.notna().sum()}{classes})")
    return f"We predicted {'; '.join(words)} from features of {len(people.ids)} people."


def _folds(settings: Settings, people: People) -> str:
    n_folds = len(np.unique(people.folds[people.folds >= 0]))
    if settings.leave_site_out:
        return (
            f"Whole sites ({settings.site}) were left out in {n_folds} folds: no model saw the site it was tested on."
        )
    text = f"People were divided into {n_folds} folds, stratified on up to five quantile bins of every target"
    text += f", with members of one {settings.groups} kept in one fold" if settings.groups else ""
    text += f", repeated {settings.n_repeats} times" if settings.n_repeats > 1 else ""
    return f"{text} (seed {settings.seed}); all feature sets used the same folds."


def _covariates(settings: Settings) -> str:
    if not settings.covariates:
        return "No covariates were removed."
    what = "targets and features" if settings.regress_features else "targets"
    motion = f" ({settings.motion} is head motion)" if settings.motion in settings.covariates else ""
    return (
        f"{listed(settings.covariates)}{motion} were removed from the {what} by linear regression with an intercept "
        f"fitted on the training fold, categories one-hot; {MISSING_RULE}."
    )


def _harmonisation(settings: Settings) -> str:
    if not settings.combat:
        return ""
    kept = f", preserving {listed(settings.preserve)} (never a target)" if settings.preserve else ""
    return f"Features were harmonised over {settings.site} with ComBat fitted on the training fold{kept}."


def _features(settings: Settings, sets: Sequence[FeatureSet]) -> str:
    lines = ["Feature sets:", ""]
    for one in sets:
        what = _SETS[one.kind].format(n_components=settings.n_components)
        lines.append(f"- **{one.name}**: {what}; {SCOPES[one.pretrain_scope]} (pretrain_scope: {one.pretrain_scope}).")
    return "\n".join(lines)


def _ridge(settings: Settings, sets: Sequence[FeatureSet]) -> str:
    if all(one.kind in ("model", "covariates") for one in sets):
        return ""
    return (
        f"Features were read by kernel ridge regression with an unpenalised bias; the kernel was "
        f"{_KERNELS[settings.kernel]}. For each target the penalty λ was chosen from {len(settings.lambdas)} values "
        f"between {min(settings.lambdas):g} and {max(settings.lambdas):g} by the predictive coefficient of "
        f"determination, averaged over {settings.n_inner_folds} inner folds of the training fold "
        "(λ = 0 is the limit λ → 0)."
    )


def _statistics(settings: Settings) -> str:
    unit = f"whole {settings.groups} groups" if settings.groups else "people"
    text = (
        "Accuracy is Pearson's r between observed values (after covariates) and predictions concatenated over test "
        "folds; the mean r within folds, the predictive coefficient of determination (R², around the mean of the other "
        "folds) and the mean absolute error are given beside it, and for two-class targets the area "
        "under the ROC curve and the balanced accuracy (cut at the mean of the other folds). "
        f"Intervals are 95 % percentile intervals over {settings.n_bootstrap:,} bootstrap resamples of {unit} with "
        "their predictions held fixed (r_low, r_high). People also train the models of other folds, which such "
        "resampling cannot see: r_low_cv and r_high_cv are √2 as wide, to cover 0 in about 95 % of cohorts where "
        "nothing can be predicted. Methods were compared by a two-sided paired bootstrap on the same resamples, with "
        "Benjamini–Hochberg q values over targets."
    )
    if settings.n_permutations:
        inside = f" and {settings.site}" if settings.site else ""
        whole = f", whole {settings.groups} groups of equal size together" if settings.groups else ""
        text += (
            f" Permutation p values, (1 + #{{null ≥ observed}}) / (1 + n), come from {settings.n_permutations:,} "
            f"permutations of the target (after covariates) within folds{inside}{whole}, with λ chosen anew for each."
        )
    return text
