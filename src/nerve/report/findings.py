"""What was found: one headline per cohort and target, the same on the page and in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nerve._utils.errors import listed
from nerve.evaluation.rows import REFERENCE
from nerve.evaluation.sites import site_verdict
from nerve.report.report_data import EncoderRun, ReportData, rows_at

FEWEST_PER_FOLD = 5  # test participants; below it a score is mostly chance, and none is given
_MANY_PARTICIPANTS = 100  # with so many, small folds (one participant, a small site) do no harm
_FOLLOWS_MOTION = 0.1  # least correlation of predictions with motion that is reported
NOTHING_PREDICTED = "nothing was predicted."
LEVEL = 0.05  # below it, p is called significant everywhere in a report
# up to this number of participants, r without any information is -.03 or less on average
_SMALL_COHORT = 200
CHANCE = {"r": 0.0, "auc": 0.5}
METRIC_NAMES = {"r": "r", "auc": "AUC"}
CHANCE_IN_SMALL_COHORTS = (
    "that r = 0 is the level of chance: in small cohorts chance is below 0 on average, at about "
    "-0.2 to -0.03 with 60 participants and nearer to 0 with more."
)


@dataclass(frozen=True)
class Finding:  # numpydoc ignore=PR02
    """A headline about one target, or about one training run.

    Parameters
    ----------
    title : str
        The cohort and the target; the encoder of a training run.
    answer : str
        What was found: the score of the best method with its interval.
    basis : str
        More about the score: number of participants, mean of the folds, permutations.
    comparisons : tuple of str
        The scores of the best reference and of the next method, compared with that of the answer.
    cautions : tuple of str
        What must not be concluded, each a clause that begins with "that".
    line : str
        The line of the best method; empty where there is no score.
    reference : str
        The line of the best reference, if there is one.
    """

    title: str
    answer: str
    basis: str = ""
    comparisons: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    line: str = ""
    reference: str = ""


def find(results: ReportData) -> list[Finding]:
    """One headline per cohort and target, or per encoder of a training run."""
    if results.is_run:
        return [_finding_of_run(encoder) for encoder in results.encoders]
    return [find_in(results, *column) for column in results.target_columns]


def find_in(results: ReportData, cohort: str, target: str) -> Finding:
    """The headline of one cohort and target: the best method, compared with the best reference."""
    metric = results.metric(cohort, target)
    title = f"{results.cohort_label(cohort)}, {results.target_label(cohort, target)}"
    line = results.best_line(cohort, target, results.contenders, metric)
    if line is None:
        return Finding(title, NOTHING_PREDICTED)
    scores = results.scores_at[cohort, target, line]
    too_few = too_few_sentence(scores.get("n", np.nan), scores.get("n_folds", np.nan))
    if too_few:
        return Finding(title, too_few)
    references = [
        name
        for name in results.lines.index[results.lines["kind"] == REFERENCE]
        if name not in (line, *results.covariate_lines)
    ]
    reference = results.best_line(cohort, target, references, metric)
    methods = [name for name in results.contenders if name not in (line, *references)]
    next_method = results.best_line(cohort, target, methods, metric)
    comparisons = []
    if reference is not None:
        words = _comparison_in_words(results, (cohort, target), line, reference, metric)
        comparisons.append(f"The best reference is {words}")
    if next_method is not None:
        words = _comparison_in_words(results, (cohort, target), line, next_method, metric)
        comparisons.append(f"The next method is {words}")
    return Finding(
        title=title,
        answer=_answer(results.label(line), scores, metric),
        basis=_basis(scores, metric),
        comparisons=tuple(comparisons),
        cautions=tuple(_cautions(results, (cohort, target), line, metric)),
        line=line,
        reference=reference or "",
    )


def shared_cautions(findings: list[Finding]) -> list[str]:
    """The cautions that all headlines have in common, which are printed once below them."""
    if len(findings) < 2:
        return []
    cautions = findings[0].cautions
    return [text for text in cautions if all(text in finding.cautions for finding in findings)]


def findings_text(results: ReportData) -> list[str]:
    """The headlines as lines for a terminal; none where nothing was predicted."""
    findings = find(results)
    if not findings:
        return []
    shared = shared_cautions(findings)
    lines = ["\nWhat was found:"]
    for finding in findings:
        lines.append(f"  {finding.title}: {finding.answer}")
        if finding.basis:
            lines.append(f"    {finding.basis}")
        lines += [f"    {text}" for text in finding.comparisons]
        own_cautions = [text for text in finding.cautions if text not in shared]
        lines += [f"    Do not conclude {text}" for text in own_cautions]
    lines += [f"  For all of these, do not conclude {text}" for text in shared]
    return lines


def corrected_interval(scores: Mapping[str, float], metric: str) -> tuple[float, float]:
    """The ends of the 95 % interval that is corrected for overlapping training sets.

    The paper's own interval is too narrow; the coverage of this one was measured
    (`studies/nulls.py`).

    Parameters
    ----------
    scores : mapping
        One row of the table of scores.
    metric : {"r", "auc"}
        The score.

    Returns
    -------
    low, high : float
        NaN where there is no interval.
    """
    low = scores.get(f"{metric}_low_cv", np.nan)
    high = scores.get(f"{metric}_high_cv", np.nan)
    return low, high


def _corrected_comparison(comparison: Mapping[Any, Any]) -> tuple[float, float]:
    """The difference of two lines, and its p from the test corrected for overlapping training sets.

    The paper's own test calls equal methods different too often; the error rate of this one was
    measured (`studies/nulls.py`).

    Parameters
    ----------
    comparison : mapping
        One row of the table of comparisons.

    Returns
    -------
    difference, p : float
        Score of `line_a` less that of `line_b`, and its two-sided p.
    """
    return float(comparison["difference"]), float(comparison["p_cv"])


def too_few_sentence(n: float, n_folds: float) -> str:
    """Why no score is given, where there are too few participants per fold.

    Parameters
    ----------
    n : float
        Number of participants.
    n_folds : float
        Number of folds.

    Returns
    -------
    str
        A sentence; empty where there are enough participants.

    Examples
    --------
    >>> too_few_sentence(24, 10)
    'no score is given: 24 participants in 10 folds are 2.4 per fold, and a score of so few \
participants is mostly chance. Use more participants or fewer folds.'
    >>> too_few_sentence(500, 500), too_few_sentence(60, 10)
    ('', '')
    """
    is_known = n > 0 and n_folds > 0  # false for NaN
    if not is_known or n >= min(FEWEST_PER_FOLD * n_folds, _MANY_PARTICIPANTS):
        return ""
    return (
        f"no score is given: {n:.0f} participants in {n_folds:.0f} folds are "
        f"{n / n_folds:.2g} per fold, and a score of so few participants is mostly chance. "
        "Use more participants or fewer folds."
    )


def _answer(label: str, scores: Mapping[str, float], metric: str) -> str:
    """The number with its interval, and whether it is more than chance."""
    low, high = corrected_interval(scores, metric)
    number = f"{METRIC_NAMES[metric]} = {scores[metric]:.2f}"
    if np.isfinite(low) and np.isfinite(high):
        number += f", 95 % interval {low:.2f} to {high:.2f}"
    if _is_above_chance(scores, metric):
        return f"{label} predicts it: {number}."
    return f"not distinguishable from chance. The best row, {label}, has {number}."


def _is_above_chance(scores: Mapping[str, float], metric: str) -> bool:
    """Whether a score is above chance: by its permutations or, without them, by its interval."""
    p = scores.get("p", np.nan)
    if np.isfinite(p):
        return bool(p < LEVEL)
    low, _ = corrected_interval(scores, metric)
    return bool(low > CHANCE[metric])


def _basis(scores: Mapping[str, float], metric: str) -> str:
    """More about the score, such as "n = 300, mean r of the folds 0.38."."""
    parts = []
    if np.isfinite(scores.get("n", np.nan)):
        parts.append(f"n = {scores['n']:.0f}")
    if metric == "r" and np.isfinite(scores.get("r_fold_mean", np.nan)):
        parts.append(f"mean r of the folds {scores['r_fold_mean']:.2f}")
    if np.isfinite(scores.get("p", np.nan)):
        parts.append(f"permutation {_p_in_words(scores['p'])}")
    return ", ".join(parts) + "." if parts else ""


def _is_small(scores: Mapping[str, float]) -> bool:
    """Whether the cohort is so small that r without any information is clearly below 0."""
    return bool(scores.get("n", np.nan) <= _SMALL_COHORT)


def _chance_caution(scores: Mapping[str, float]) -> str:
    """Where r lies in a small cohort if nothing can be predicted."""
    centre = scores.get("r_null_mean", np.nan)
    if np.isfinite(centre):
        return (
            "that r = 0 is the level of chance: permutations give an r of "
            f"{centre:.2f} on average here."
        )
    return CHANCE_IN_SMALL_COHORTS


def _comparison_in_words(
    results: ReportData, column: tuple[str, str], line: str, other: str, metric: str
) -> str:
    """The score of another line, and whether it differs from that of the headline."""
    score = results.scores_at[(*column, other)][metric]
    words = f"{results.label(other)}, {METRIC_NAMES[metric]} = {score:.2f}"
    for pair in rows_at(results.comparisons, *column).to_dict("records"):
        if (pair["line_a"], pair["line_b"]) != (line, other):
            continue
        difference, p = _corrected_comparison(pair)
        if not np.isfinite(p):
            break
        if p >= LEVEL:
            verdict = "no clear difference"
        elif difference > 0:
            verdict = "clearly worse"
        else:
            verdict = "clearly better"
        return f"{words}: {verdict} ({_p_in_words(p)})."
    return f"{words}."


def _cautions(results: ReportData, column: tuple[str, str], line: str, metric: str) -> list[str]:
    """What must not be concluded: about chance, motion, site, covariates, pretraining, simulation."""
    cohort, target = column
    scores = results.scores_at[cohort, target, line]
    name = METRIC_NAMES[metric]
    cautions = []
    if not _is_above_chance(scores, metric):
        cautions.append("that the target can be predicted here: chance alone gives such a score.")
    if metric == "r" and _is_small(scores):
        cautions.append(_chance_caution(scores))

    with_motion = scores.get("r_prediction_motion", np.nan)
    if not np.isfinite(with_motion):
        cautions.append("that head motion plays no role: it was not examined here.")
    elif abs(with_motion) >= max(_FOLLOWS_MOTION, abs(scores["r"])):
        cautions.append(
            "that the model reads the brain rather than head motion: predictions follow motion "
            f"(r = {with_motion:.2f}) as closely as the target (r = {scores['r']:.2f})."
        )

    within_sites = scores.get("r_within_site", np.nan)
    verdict = site_verdict(scores["r"], within_sites)
    if "between" in verdict:
        cautions.append(
            f"that the score holds within a site: {verdict} (r = {scores['r']:.2f}, "
            f"{within_sites:.2f} within sites)."
        )

    protocol = results.about.get("protocols", {}).get(cohort, {})
    removed = protocol.get("covariates") or []
    covariates = results.best_line(cohort, target, results.covariate_lines, metric)
    if covariates is not None:
        alone = results.scores_at[cohort, target, covariates][metric]
        if alone >= scores[metric]:
            cautions.append(
                f"that FC is needed to predict the target: {listed(removed) or 'covariates'} "
                f"alone reach {name} = {alone:.2f} where they are not removed from it."
            )
    if set(removed) <= {protocol.get("motion"), target}:
        cautions.append("that the score reflects more than age or sex: neither was removed.")

    rows = rows_at(results.scores, cohort, target)
    scopes = rows.loc[rows["line"] == line, "scope"] if "scope" in rows else ()
    if set(scopes) & {"all", "some"}:
        cautions.append(
            "that the score holds for participants whom the encoder has not seen: FC of the test "
            "participants, but never their scores, was in its pretraining."
        )
    if len(results.contenders) > 2:
        cautions.append(
            "that this method is the best in other cohorts: it has the highest of "
            f"{len(results.contenders)} scores, and the highest of many scores is partly a matter "
            "of chance."
        )
    if cohort in results.cohorts and results.cohorts[cohort].simulated:
        cautions.append("that the same holds for real brains: the participants are simulated.")
    return cautions


def _finding_of_run(encoder: EncoderRun) -> Finding:
    """What a training has learned, by its error on masked patches."""
    cautions = ["that the encoder helps to predict anything: no target was predicted here."]
    if encoder.warning:
        return Finding(encoder.label, encoder.warning, cautions=tuple(cautions))
    if np.isfinite(encoder.error_ratio):
        answer = (
            "masked patches of held-out participants are reconstructed with "
            f"{encoder.error_ratio:.2f} times the error of the group mean."
        )
    else:
        answer = f"trained for {len(encoder.history)} epochs; its error is not known."
    return Finding(encoder.label, answer, cautions=tuple(cautions))


def _p_in_words(p: float) -> str:
    """Such as "p = 0.030" or "p < 0.001"."""
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"
