"""From one feature set on one cohort (`evaluate_features`) to `Results` of many (`combine`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import naming_participants
from nerve.data.cohort import Cohort
from nerve.evaluation.bootstrap import adjusted_p, permutation_p
from nerve.evaluation.comparisons import all_comparisons
from nerve.evaluation.cross_validation import predict_permuted_targets, predict_targets
from nerve.evaluation.curves import learning_curve
from nerve.evaluation.feature_sets import FeatureSet, PrincipalComponents, RawFC
from nerve.evaluation.folds import group_codes
from nerve.evaluation.kernel_ridge import KernelRidge
from nerve.evaluation.krylov import lanczos_is_cheaper
from nerve.evaluation.participants import Participants
from nerve.evaluation.protocol import Protocol
from nerve.evaluation.protocol_text import participants_summary
from nerve.evaluation.results import Results
from nerve.evaluation.rows import GIVEN, NULL, SELF_SUPERVISED, Row, pretraining_use, rows_table
from nerve.evaluation.sites import site_accuracy, site_table
from nerve.evaluation.statistics import motion_table, score_table

# what a score belongs to
PLACE = ["cohort", "target", "row"]
COHORTS = [
    "cohort",
    "label",
    "n",
    "n_regions",
    "parcellation",
    "fingerprint",
    "pretrained_on",
    "simulated",
]
# participants whose kernel takes 3 GiB, and as much again for each fold
LARGE_KERNEL = 20_000


@dataclass
class Evaluation:  # numpydoc ignore=PR02
    """Everything computed for one row of results on one cohort.

    Parameters
    ----------
    row : Row
        What the feature set is called in results.
    cohort : str
        Name of the cohort.
    predictions : DataFrame
        What `predict_targets` gives.
    nulls : DataFrame
        What `predict_permuted_targets` gives; empty without permutations.
    curves : DataFrame
        What `learning_curve` gives; empty without numbers of labels.
    facts : dict
        n, adapted, scope, trained_on, width, notes, site_accuracy, seconds.
    """

    row: Row
    cohort: str
    predictions: pd.DataFrame
    nulls: pd.DataFrame = field(default_factory=pd.DataFrame)
    curves: pd.DataFrame = field(default_factory=pd.DataFrame)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class EvaluatedCohort:  # numpydoc ignore=PR02
    """A cohort that was evaluated, with what results say about it.

    Parameters
    ----------
    cohort : Cohort
        Whose participants are tested.
    participants : Participants
        With their folds.
    protocol : Protocol
        Resolved: motion and preserved columns by name.
    label : str
        What tables call it.
    fingerprint : str
        Of the cohort as it lies on disk.
    simulated : bool
        Whether its participants are simulated.
    """

    cohort: Cohort
    participants: Participants
    protocol: Protocol
    label: str = ""
    fingerprint: str = ""
    simulated: bool = False

    @property
    def name(self) -> str:
        """What results call it."""
        return self.participants.cohort


def evaluate_features(
    features: FeatureSet,
    cohort: Cohort,
    participants: Participants,
    protocol: Protocol,
    row: Row,
    *,
    predict_site: bool = True,
) -> Evaluation:
    """Predict the targets of a cohort from one feature set, with nulls and curves if asked for.

    Parameters
    ----------
    features : FeatureSet
        Prepared here, once for everything that is computed of it.
    cohort : Cohort
        Where another cohort is trained on: both, as `transfer.prepare_transfer` joins them.
    participants : Participants
        With targets, covariates and folds.
    protocol : Protocol
        Resolved: motion and preserved columns by name.
    row : Row
        What the feature set is called in results.
    predict_site : bool
        Whether features also predict the site, which takes a few more folds.

    Returns
    -------
    Evaluation
        Predictions, nulls, curves, and what is known of the features.
    """
    with naming_participants(participants.ids):
        features.prepare(cohort, participants, protocol)
    predictions = predict_targets(features, participants, protocol)
    evaluation = Evaluation(row, participants.cohort, predictions)
    if protocol.n_permutations and features.permutes:
        evaluation.nulls = predict_permuted_targets(features, participants, protocol)
    if protocol.labels:
        evaluation.curves = learning_curve(features, participants, protocol)
    scope = features.scope
    if participants.trained_on and scope == "train_folds":
        # the training fold is another cohort
        scope = "other_people"
    evaluation.facts = {
        "n": len(cohort),
        "adapted": features.adapted,
        "scope": scope,
        "trained_on": features.trained_on,
        "width": features.width(cohort, protocol),
        "notes": _feature_notes(features, participants, protocol),
        "site_accuracy": site_accuracy(features, participants, protocol) if predict_site else None,
    }
    return evaluation


def _feature_notes(
    features: FeatureSet, participants: Participants, protocol: Protocol
) -> list[str]:
    """What a user should be told about one feature set."""
    notes = list(features.notes)
    if protocol.regress_features and protocol.covariates:
        notes.append(
            "Covariates are regressed from the features too: with a non-linear probe this can leak "
            "confounds into the prediction instead of removing them. Compare with "
            "regress_features=False."
        )
    n = len(participants.ids)
    n_folds = len(np.unique(participants.folds[0]))
    n_training = n - n // n_folds
    n_targets = participants.targets.shape[1]
    is_ridge = isinstance(features.model, KernelRidge)
    if is_ridge and lanczos_is_cheaper(n_training, n_targets, protocol.n_inner_folds):
        notes.append(
            f"With {n:,} participants, a kernel of all of them is solved by Lanczos' method "
            "instead of a decomposition; `python -m benchmarks thousands` compares both."
        )
    if n > LARGE_KERNEL and isinstance(features, RawFC | PrincipalComponents):
        notes.append(
            f"A kernel of {n:,} participants takes {8 * n**2 / 2**30:.0f} GiB, and each fold as "
            "much again. Features of fewer numbers than participants, such as those of an "
            "encoder, need no kernel."
        )
    return notes


def combine(
    evaluations: Sequence[Evaluation],
    cohorts: Sequence[EvaluatedCohort],
    rows: Sequence[Row],
    about: Mapping[str, Any],
    encoder_seconds: Mapping[str, float] | None = None,
) -> Results:
    """Put evaluations together: score every row, and compare the rows of each cohort.

    Parameters
    ----------
    evaluations : sequence of Evaluation
        One per row and cohort, or several of different targets.
    cohorts : sequence of EvaluatedCohort
        All cohorts of these evaluations.
    rows : sequence of Row
        In the order of tables.
    about : mapping
        What protocol.json holds besides the protocol and the participants of each cohort, which
        are added here.
    encoder_seconds : mapping, optional
        Row → the time that its encoder was trained for.

    Returns
    -------
    Results
        Scores and comparisons of all rows.
    """
    described = [_described(row, evaluations, encoder_seconds or {}) for row in rows]
    row_table = rows_table(described)
    predictions = _concatenated(evaluations, "predictions")
    nulls = _concatenated(evaluations, "nulls")  # r where the targets were permuted
    curves = _concatenated(evaluations, "curves")

    # Rows of kind NULL are encoders whose networks (not targets) were permuted. They are a null
    # distribution: scored but not compared.
    null_rows = row_table.loc[row_table["kind"] == NULL, "row"]
    is_null = predictions["row"].isin(null_rows)
    null_predictions = predictions[is_null]
    predictions = predictions[~is_null].reset_index(drop=True)

    score_parts = []
    comparison_parts = []
    for name, part in predictions.groupby("cohort", sort=False):
        evaluated = next(cohort for cohort in cohorts if cohort.name == name)
        scores, comparisons = _score_and_compare(part, row_table, evaluated)
        score_parts.append(scores)
        comparison_parts.append(comparisons)
    scores = _with_facts(pd.concat(score_parts, ignore_index=True), evaluations)
    if len(nulls):
        scores["p"] = _one_sided_p(scores, nulls, PLACE)
        null_means = nulls.groupby(PLACE)["r"].mean().rename("r_null_mean")
        scores = scores.merge(null_means.reset_index(), how="left", on=PLACE)
        scores["q"] = scores["p"].groupby([scores["cohort"], scores["row"]]).transform(adjusted_p)
    if len(null_predictions):
        null_scores = score_table(null_predictions, n_bootstrap=0)
        scores["p_permuted_networks"] = _p_permuted_networks(scores, null_scores, row_table)
        scores = pd.concat([scores, null_scores], ignore_index=True)

    results = Results(
        about=dict(about) | _about_cohorts(cohorts, evaluations),
        rows=row_table,
        cohorts=_cohort_table(cohorts, row_table, scores),
        folds=pd.concat(
            [_fold_table(cohort.participants) for cohort in cohorts], ignore_index=True
        ),
        predictions=predictions,
        scores=scores,
        comparisons=pd.concat(comparison_parts, ignore_index=True),
    )
    if len(nulls):
        results.nulls = nulls
    if len(curves):
        results.curves = curves
    return results


def _concatenated(evaluations: Iterable[Evaluation], name: str) -> pd.DataFrame:
    """One table of all evaluations, with cohort and row."""
    parts = []
    for evaluation in evaluations:
        table = getattr(evaluation, name)
        if len(table):
            parts.append(table.assign(cohort=evaluation.cohort, row=evaluation.row.row))
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    if "class_column" in table:
        table["class_column"] = table["class_column"].fillna("")
    return table[[*PLACE, *table.columns.difference(PLACE, sort=False)]]


def _score_and_compare(
    predictions: pd.DataFrame, rows: pd.DataFrame, evaluated: EvaluatedCohort
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores of one cohort, with correlations with motion and within sites; and its comparisons."""
    participants = evaluated.participants
    protocol = evaluated.protocol
    ids = participants.ids
    families = None
    if participants.groups is not None:
        families = dict(zip(ids, participants.groups, strict=True))
    scores = score_table(predictions, protocol.n_bootstrap, protocol.seed, families)
    if participants.motion:
        motion = dict(zip(ids, participants.table[participants.motion], strict=True))
        scores = scores.merge(motion_table(predictions, motion), how="left", on=PLACE)
    if participants.sites is not None and len(set(participants.sites)) > 1:
        sites = dict(zip(ids, participants.sites, strict=True))
        scores = scores.merge(site_table(predictions, sites), how="left", on=PLACE)
    comparisons = all_comparisons(predictions, rows, protocol.n_bootstrap, protocol.seed, families)
    return scores, comparisons


def _with_facts(scores: pd.DataFrame, evaluations: Iterable[Evaluation]) -> pd.DataFrame:
    """Scores with the facts of each evaluation: scope, training cohorts, substitutes, sites."""
    records = []
    for evaluation in evaluations:
        facts = evaluation.facts
        records.append(
            {
                "cohort": evaluation.cohort,
                "row": evaluation.row.row,
                "scope": facts.get("scope"),
                "adapted": facts.get("adapted"),
                "site_accuracy": facts.get("site_accuracy"),
                "trained_on": _in_words(facts.get("trained_on") or {}),
            }
        )
    table = pd.DataFrame(records).drop_duplicates(["cohort", "row"])
    scores = scores.merge(table, how="left", on=["cohort", "row"])
    first = [*PLACE, "scope", "trained_on", "adapted"]
    return scores[[*first, *scores.columns.difference(first, sort=False)]]


def _described(
    row: Row, evaluations: Iterable[Evaluation], encoder_seconds: Mapping[str, float]
) -> Row:
    """The row with width, time, scope, training cohorts and substitutes of its evaluations."""
    own = [evaluation for evaluation in evaluations if evaluation.row.row == row.row]
    # scope → the cohorts that are tested, and training cohorts → the cohorts that are tested
    tested_by_scope: dict[str, list[str]] = {}
    tested_by_training: dict[str, list[str]] = {}
    for evaluation in own:
        tested = tested_by_scope.setdefault(evaluation.facts["scope"], [])
        if evaluation.cohort not in tested:  # a network may have one evaluation per target
            tested.append(evaluation.cohort)
        training = _in_words(evaluation.facts.get("trained_on") or {})
        tested_by_training.setdefault(training, []).append(evaluation.cohort)

    # cohorts are named only where they differ
    scope = next(iter(tested_by_scope), row.scope)
    if len(tested_by_scope) > 1:
        phrases = [f"{name} ({', '.join(tested)})" for name, tested in tested_by_scope.items()]
        scope = "; ".join(phrases)
    trained_on = next(iter(tested_by_training), "")
    if len(tested_by_training) > 1:
        phrases = []
        for training, tested in tested_by_training.items():
            if training:
                phrases.append(f"{training} where {', '.join(tested)} is tested")
        trained_on = "; ".join(phrases)

    facts = [evaluation.facts for evaluation in own]
    substitutes = [fact["adapted"] for fact in facts if fact.get("adapted")]
    seconds = sum(fact.get("seconds", 0.0) for fact in facts)
    seconds += encoder_seconds.get(row.row, 0.0)
    return replace(
        row,
        width=max((fact.get("width", 0) for fact in facts), default=0),
        seconds=round(seconds, 2),
        scope=scope,
        trained_on=trained_on,
        adapted="; ".join(dict.fromkeys(substitutes)),
    )


def _in_words(trained_on: Mapping[str, int]) -> str:
    """Training cohorts with their numbers of participants: "A (70), B (60)"."""
    return ", ".join(f"{name} ({count})" for name, count in trained_on.items())


def _one_sided_p(scores: pd.DataFrame, nulls: pd.DataFrame, place: list[str]) -> list[float]:
    """One-sided p of every r among the null r with the same values in the columns `place`."""
    null_at = {key: part["r"].to_numpy(float) for key, part in nulls.groupby(place)}
    values = []
    for *key, r in scores[[*place, "r"]].itertuples(index=False, name=None):
        null = null_at.get(tuple(key))
        values.append(np.nan if null is None else permutation_p(null, r))
    return values


def _p_permuted_networks(
    scores: pd.DataFrame, null_scores: pd.DataFrame, rows: pd.DataFrame
) -> list[float]:
    """One-sided p of each trained encoder among encoders of permuted networks.

    Reports mark p < .05 with †. An encoder is compared with all null models of its method, cohort
    and target, whatever its networks and settings are. Rows that differ in their seed alone (a
    line) share one p, that of their mean r. Rows that are not trained encoders, or whose method has
    no null models, have NaN.
    """
    by_row = rows.set_index("row")
    lines = scores["row"].map(by_row["line"])
    mean_r = scores["r"].groupby([scores["cohort"], scores["target"], lines]).transform("mean")
    tested = scores.assign(r=mean_r, method=scores["row"].map(by_row["method"]))
    permuted = null_scores.assign(method=null_scores["row"].map(by_row["method"]))
    p = pd.Series(_one_sided_p(tested, permuted, ["cohort", "target", "method"]), scores.index)
    is_trained = scores["row"].map(by_row["kind"]) == SELF_SUPERVISED
    return p.where(is_trained).tolist()


def _cohort_table(
    cohorts: Iterable[EvaluatedCohort], rows: pd.DataFrame, scores: pd.DataFrame
) -> pd.DataFrame:
    """One row per cohort; `pretrained_on` follows from the scopes that its rows have there."""
    kinds = dict(zip(rows["row"], rows["kind"], strict=True))
    records = []
    for evaluated in cohorts:
        cohort = evaluated.cohort
        own = scores.loc[scores["cohort"] == evaluated.name, ["row", "scope"]].drop_duplicates()
        learned = [kinds[row] in (SELF_SUPERVISED, GIVEN) for row in own["row"]]
        records.append(
            {
                "cohort": evaluated.name,
                "label": evaluated.label or evaluated.name,
                "n": len(cohort),
                "n_regions": cohort.n_regions,
                "parcellation": cohort.parcellation.name,
                "fingerprint": evaluated.fingerprint or cohort.fingerprint,
                "pretrained_on": pretraining_use(own["scope"], own.loc[learned, "scope"]),
                "simulated": evaluated.simulated,
            }
        )
    return pd.DataFrame(records, columns=COHORTS)


def _fold_table(participants: Participants) -> pd.DataFrame:
    """Test fold of each participant in each repeat, and their group (family or same FC)."""
    parts = []
    groups = group_codes(participants.groups, len(participants.ids))
    for repeat, folds in enumerate(participants.folds):
        table = pd.DataFrame(
            {
                "cohort": participants.cohort,
                "participant": participants.ids,
                "repeat": repeat,
                "fold": folds,
                "group_number": groups,
            }
        )
        parts.append(table[folds >= 0])
    return pd.concat(parts, ignore_index=True)


def _about_cohorts(
    cohorts: Iterable[EvaluatedCohort], evaluations: Iterable[Evaluation]
) -> dict[str, Any]:
    """The protocol and participants of each cohort, with the notes of all feature sets."""
    protocols = {}
    summaries = {}
    for evaluated in cohorts:
        protocols[evaluated.name] = evaluated.protocol.as_dict()
        summaries[evaluated.name] = participants_summary(evaluated.participants)
    for evaluation in evaluations:
        notes = summaries[evaluation.cohort]["notes"]
        for note in evaluation.facts.get("notes", []):
            if note not in notes:
                notes.append(note)
    return {"protocols": protocols, "participants": summaries}
