"""What was found: a headline per cohort and target, the same on the page and in the terminal."""

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
_FOLLOWS_MOTION = 0.1  # correlation of predictions with motion that is worth a sentence
NOTHING_PREDICTED = "nothing was predicted."
DO_NOT_CONCLUDE = "Do not conclude"
_LEVEL = 0.05
# up to so many participants, r is below 0 by .03 or more where nothing can be predicted
_SMALL_COHORT = 200
CHANCE = {"r": 0.0, "auc": 0.5}
METRIC_NAMES = {"r": "r", "auc": "AUC"}
CHANCE_IN_SMALL_COHORTS = (
    "that r = 0 is chance: in so few participants chance is below 0 on average, about -0.2 to "
    "-0.03 in 60, nearer to 0 in more."
)


@dataclass(frozen=True)
class Finding:  # numpydoc ignore=PR02
    """A headline.

    Parameters
    ----------
    title : str
        The cohort and its target.
    answer : str
        What was found: the number and its interval.
    basis : str
        What the number rests on: participants, mean of folds, permutations.
    comparisons : tuple of str
        How the best reference and the next method do beside it.
    cautions : tuple of str
        What may not be concluded, each a clause that begins with "that".
    line : str
        The line that the answer is about; empty where there is no score.
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
    """One headline per cohort and target, or that of a training run."""
    if results.is_run:
        return [_finding_of_run(encoder) for encoder in results.encoders]
    return [find_in(results, *column) for column in results.target_columns]


def find_in(results: ReportData, cohort: str, target: str) -> Finding:
    """The headline of one cohort and target: its best method, beside the best reference."""
    metric = results.metric(cohort, target)
    title = f"{results.cohort_label(cohort)}, {results.target_label(cohort, target)}"
    line = results.best_line(cohort, target, results.contenders, metric)
    if line is None:
        return Finding(title, NOTHING_PREDICTED)
    scores = results.by_place[cohort, target, line]
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
    """The cautions that all of several headlines have; they are said once."""
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
        beside = [text for text in (finding.basis, *finding.comparisons) if text]
        lines += [f"    {text}" for text in beside]
        own = [text for text in finding.cautions if text not in shared]
        lines += [f"    {DO_NOT_CONCLUDE} {text}" for text in own]
    lines += [f"  Of all of these, do not conclude {text}" for text in shared]
    return lines


def holding_interval(scores: Mapping[str, float], metric: str) -> tuple[float, float]:
    """The ends of the 95 % interval whose coverage was measured to hold.

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


def holding_comparison(comparison: Mapping[Any, Any]) -> tuple[float, float]:
    """The difference and p of the test of two lines whose size was measured to hold."""
    return float(comparison["difference"]), float(comparison["p_cv"])


def is_told_from_chance(scores: Mapping[str, float], metric: str) -> bool:
    """Whether a score is above chance: by its permutations, else by its interval."""
    p = scores.get("p", np.nan)
    if np.isfinite(p):
        return bool(p < _LEVEL)
    low, _ = holding_interval(scores, metric)
    return bool(low > CHANCE[metric])


def too_few_sentence(n: float, n_folds: float) -> str:
    """Why a score of so few participants per fold is not given; empty where there are enough.

    Parameters
    ----------
    n : float
        Participants.
    n_folds : float
        Folds that they are in.

    Returns
    -------
    str
        A sentence.

    Examples
    --------
    >>> too_few_sentence(24, 10)
    'no score is given: 24 participants in 10 folds are 2.4 per fold, and a score of so few is \
mostly chance. Use more participants or fewer folds.'
    >>> too_few_sentence(500, 500), too_few_sentence(60, 10)
    ('', '')
    """
    if not (n > 0 and n_folds > 0) or n >= min(FEWEST_PER_FOLD * n_folds, _MANY_PARTICIPANTS):
        return ""
    return (
        f"no score is given: {n:.0f} participants in {n_folds:.0f} folds are "
        f"{n / n_folds:.2g} per fold, and a score of so few is mostly chance. "
        "Use more participants or fewer folds."
    )


def _answer(label: str, scores: Mapping[str, float], metric: str) -> str:
    """The number with its interval, and whether it is more than chance."""
    low, high = holding_interval(scores, metric)
    number = f"{METRIC_NAMES[metric]} = {scores[metric]:.2f}"
    if np.isfinite(low) and np.isfinite(high):
        number += f", 95 % interval {low:.2f} to {high:.2f}"
    if is_told_from_chance(scores, metric):
        return f"{label} predicts it: {number}."
    return f"not told from chance. The best row, {label}, has {number}."


def _basis(scores: Mapping[str, float], metric: str) -> str:
    """What the number rests on, such as "n = 300, mean of folds 0.38."."""
    parts = []
    if np.isfinite(scores.get("n", np.nan)):
        parts.append(f"n = {scores['n']:.0f}")
    if metric == "r" and np.isfinite(scores.get("r_fold_mean", np.nan)):
        parts.append(f"mean of folds {scores['r_fold_mean']:.2f}")
    if np.isfinite(scores.get("p", np.nan)):
        parts.append(f"permutation {p_in_words(scores['p'])}")
    return ", ".join(parts) + "." if parts else ""


def _is_small(scores: Mapping[str, float]) -> bool:
    """Whether so few participants were tested that r is clearly negative by chance."""
    return bool(scores.get("n", np.nan) <= _SMALL_COHORT)


def _chance_caution(scores: Mapping[str, float]) -> str:
    """Where r lies in a small cohort if nothing can be predicted."""
    centre = scores.get("r_null_mean", np.nan)
    if np.isfinite(centre):
        return (
            f"that r = 0 is chance: chance is {centre:.2f} here on average, as permutations show."
        )
    return CHANCE_IN_SMALL_COHORTS


def _comparison_in_words(
    results: ReportData, column: tuple[str, str], line: str, other: str, metric: str
) -> str:
    """How another line does beside the one of the headline."""
    score = results.by_place[(*column, other)][metric]
    words = f"{results.label(other)}, {METRIC_NAMES[metric]} = {score:.2f}"
    for pair in rows_at(results.comparisons, *column).to_dict("records"):
        if (pair["line_a"], pair["line_b"]) != (line, other):
            continue
        difference, p = holding_comparison(pair)
        if not p < _LEVEL:  # or not a number
            verdict = "not distinguishable from it"
        elif difference > 0:
            verdict = "clearly worse"
        else:
            verdict = "clearly better"
        return f"{words}: {verdict} ({p_in_words(p)})." if np.isfinite(p) else f"{words}."
    return f"{words}."


def p_in_words(p: float) -> str:
    """Such as "p = 0.030" or "p < 0.001"."""
    return f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"


def _cautions(results: ReportData, column: tuple[str, str], line: str, metric: str) -> list[str]:
    """What may not be concluded: chance, motion, site, covariates, pretraining, simulation."""
    cohort, target = column
    scores = results.by_place[cohort, target, line]
    name = METRIC_NAMES[metric]
    cautions = []
    if not is_told_from_chance(scores, metric):
        cautions.append("that the target can be predicted here: chance gives this as well.")
    if metric == "r" and _is_small(scores):
        cautions.append(_chance_caution(scores))

    with_motion = scores.get("r_prediction_motion", np.nan)
    if not np.isfinite(with_motion):
        cautions.append("that head motion plays no part: it was not looked at here.")
    elif abs(with_motion) >= max(_FOLLOWS_MOTION, abs(scores["r"])):
        cautions.append(
            "that the brain is read rather than head motion: predictions follow motion "
            f"(r = {with_motion:.2f}) as closely as the target (r = {scores['r']:.2f})."
        )

    within_sites = scores.get("r_within_site", np.nan)
    verdict = site_verdict(scores["r"], within_sites)
    if "between" in verdict:
        cautions.append(
            f"that it holds within a site: {verdict} (r = {scores['r']:.2f}, "
            f"{within_sites:.2f} within sites)."
        )

    protocol = results.about.get("protocols", {}).get(cohort, {})
    removed = protocol.get("covariates") or []
    covariates = results.best_line(cohort, target, results.covariate_lines, metric)
    if covariates is not None:
        alone = results.by_place[cohort, target, covariates][metric]
        if alone >= scores[metric]:
            cautions.append(
                f"that FC is needed to predict the target: {listed(removed) or 'covariates'} "
                f"alone have {name} = {alone:.2f} where they are left in it."
            )
    if set(removed) <= {protocol.get("motion"), target}:
        cautions.append("that it is more than age or sex: neither was removed.")

    rows = rows_at(results.scores, cohort, target)
    scopes = rows.loc[rows["line"] == line, "scope"] if "scope" in rows else ()
    if set(scopes) & {"all", "some"}:
        cautions.append(
            "that it holds for participants whom the encoder has not seen: FC of those tested, "
            "never their scores, was in its pretraining."
        )
    if len(results.contenders) > 2:
        cautions.append(
            f"that this method is the best elsewhere: it has the highest of "
            f"{len(results.contenders)} scores, and the highest of many is high by chance as well."
        )
    if cohort in results.cohorts and results.cohorts[cohort].simulated:
        cautions.append("that it is so in real brains: the participants are simulated.")
    return cautions


def _finding_of_run(encoder: EncoderRun) -> Finding:
    """What a training has learned, by its error on masked patches."""
    cautions = ["that it predicts anything: no target was predicted here."]
    if encoder.doubt:
        return Finding(encoder.label, encoder.doubt, cautions=tuple(cautions))
    if np.isfinite(encoder.error_ratio):
        answer = (
            "masked patches of held-out participants are filled in with "
            f"{encoder.error_ratio:.2f} times the error of the group mean."
        )
    else:
        answer = f"trained for {len(encoder.history)} epochs; its error is not known."
    return Finding(encoder.label, answer, cautions=tuple(cautions))
