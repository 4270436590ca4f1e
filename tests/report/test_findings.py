"""Headlines say the number, its interval and the best reference, and what may not be concluded."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from folders import COMPARED, Made, line, rows, with_holding_columns, write_folder

from nerve.evaluation.results import Results
from nerve.evaluation.rows import rows_table
from nerve.experiments.terminal import show_findings, show_scores
from nerve.report.findings import (
    CHANCE_IN_SMALL_COHORTS,
    find,
    findings_text,
    shared_cautions,
    too_few_sentence,
)
from nerve.report.load import load_results
from nerve.report.page import render_page
from nerve.report.report_data import CohortFacts, EncoderRun, ReportData

LINES = {
    "nerve": line("nerve", "nerve", "NERVE", "self-supervised"),
    "gate": line("gate", "gate", "GATE", "self-supervised"),
    "raw": line("raw", "raw", "Raw FC", "reference"),
    "pca": line("pca", "pca", "PCA", "reference"),
    "covariates": line("covariates", "covariates", "Covariates", "reference"),
}


def made(scores, p_raw=0.5, targets=("iq",), covariates=("age", "sex"), **more):
    """Results of one cohort, 'alpha'; scores of each line on every target."""
    records = []
    for target in targets:
        for name, own in scores.items():
            known = {"n": 300, "n_folds": 10, "scope": "none", "r_prediction_motion": 0.01}
            known |= {"r_low_cv": own["r"] - 0.1, "r_high_cv": own["r"] + 0.1}
            place = {"cohort": "alpha", "target": target, "line": name, "row": f"{name}-0"}
            records.append(place | known | more | own)
    compared = []
    for target in targets:
        for other in [name for name in scores if name not in ("nerve", "covariates")]:
            among = "reference" if LINES[other][0].kind == "reference" else "methods"
            a, b = scores["nerve"]["r"], scores[other]["r"]
            values = ["r", a, b, a - b, 0, 0, p_raw, 0.5, False, 200, among == "methods"]
            places = ["alpha", target, "nerve", other, among]
            compared.append(dict(zip(COMPARED, places + values, strict=True)))
    protocol = {"targets": list(targets), "covariates": list(covariates)}
    about = {
        "protocols": {"alpha": protocol},
        "participants": {"alpha": {"targets": {}}},
    }
    return ReportData(
        about=about,
        rows=rows_table([row for name in scores for row in LINES[name]]),
        scores=pd.DataFrame(records),
        comparisons=with_holding_columns(pd.DataFrame(compared, columns=COMPARED)),
        cohorts={"alpha": CohortFacts("Alpha", 200)},
    )


def only(results):
    (finding,) = find(results)
    return finding


def test_the_number_its_interval_and_the_best_reference():
    scores = {"nerve": {"r": 0.4}, "raw": {"r": 0.3}, "pca": {"r": 0.2}}
    finding = only(made(scores, p_raw=0.2))
    assert finding.title == "Alpha, iq"
    assert finding.answer == "NERVE predicts it: r = 0.40, 95 % interval 0.30 to 0.50."
    assert finding.basis == "n = 300."
    assert finding.comparisons == (
        "The best reference is Raw FC, r = 0.30: no clear difference (p = 0.200).",
    )
    assert finding.cautions == ()
    assert (finding.line, finding.reference) == ("nerve", "raw")
    (worse,) = only(made(scores, p_raw=0.0004)).comparisons
    assert worse.endswith("clearly worse (p < 0.001).")
    (better,) = only(made(scores | {"raw": {"r": 0.5}}, p_raw=0.01)).comparisons
    assert better.endswith("r = 0.50: clearly better (p = 0.010).")


def test_verdicts_come_from_the_corrected_test_and_not_from_the_bootstrap_of_the_paper():
    results = made({"nerve": {"r": 0.4, "r_fold_mean": 0.38}, "raw": {"r": 0.3}}, p_raw=0.001)
    corrected = results.comparisons.assign(p_cv=0.3)
    finding = only(replace(results, comparisons=corrected))
    (comparison,) = finding.comparisons
    assert comparison.endswith("no clear difference (p = 0.300).")
    assert "r = 0.40, 95 % interval 0.30 to 0.50" in finding.answer
    assert finding.basis == "n = 300, mean r of the folds 0.38."


def test_a_small_cohort_is_told_that_chance_is_below_zero():
    """With the centre of the permutations where there are any; not in a large cohort."""
    of_few = only(made({"nerve": {"r": 0.4}}, n=60)).cautions
    assert CHANCE_IN_SMALL_COHORTS in of_few
    with_permutations = only(made({"nerve": {"r": 0.4, "p": 0.01}}, n=60, r_null_mean=-0.12))
    assert (
        "that r = 0 is the level of chance: permutations give an r of -0.12 on average here."
        in with_permutations.cautions
    )
    of_many = only(made({"nerve": {"r": 0.4}}, n=300)).cautions
    assert not any("r = 0 is the level of chance" in text for text in of_many)


def test_the_next_method_is_named_and_a_lone_row_stands_alone():
    finding = only(made({"nerve": {"r": 0.4}, "gate": {"r": 0.35}, "raw": {"r": 0.1}}))
    assert [text[:23] for text in finding.comparisons] == [
        "The best reference is R",
        "The next method is GATE",
    ]
    assert only(made({"nerve": {"r": 0.4}})).comparisons == ()


def test_references_alone_have_a_headline_too():
    results = made({"nerve": {"r": 0.4}, "raw": {"r": 0.3}, "pca": {"r": 0.2}})
    references = results.rows[results.rows["kind"] == "reference"]
    scores = results.scores[results.scores["line"] != "nerve"]
    finding = only(
        replace(results, rows=references, scores=scores, comparisons=results.comparisons[:0])
    )
    assert finding.answer.startswith("Raw FC predicts it: r = 0.30")
    assert finding.comparisons == ("The best reference is PCA, r = 0.20.",)


@pytest.mark.parametrize(
    ("own", "predicted"),
    [({"r": 0.05}, False), ({"r": 0.05, "p": 0.01}, True), ({"r": 0.4, "p": 0.3}, False)],
)
def test_chance_is_judged_by_permutations_or_without_them_by_the_interval(own, predicted):
    finding = only(made({"nerve": own}))
    said = any(text.startswith("that the target can be predicted") for text in finding.cautions)
    assert said is not predicted
    assert finding.answer.startswith(
        "NERVE predicts it" if predicted else "not distinguishable from chance."
    )
    assert ("permutation p" in finding.basis) is ("p" in own)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"r_prediction_motion": 0.45}, "head motion: predictions follow motion (r = 0.45)"),
        ({"r_prediction_motion": np.nan}, "that head motion plays no role: it was not examined"),
        ({"r_within_site": 0.05}, "most of this r is between sites (r = 0.40, 0.05 within sites)"),
        ({"scope": "all"}, "participants whom the encoder has not seen"),
    ],
)
def test_cautions_follow_from_motion_site_and_scope(more, words):
    (caution,) = only(made({"nerve": {"r": 0.4}}, **more)).cautions
    assert words in caution


def test_cautions_follow_from_covariates_that_predict_alone_or_were_not_removed():
    scores = {"nerve": {"r": 0.4}, "covariates": {"r": 0.6}}
    (caution,) = only(made(scores)).cautions
    assert "age, sex alone reach r = 0.60 where they are not removed from it" in caution
    assert only(made(scores | {"covariates": {"r": 0.1}})).cautions == ()
    (caution,) = only(made({"nerve": {"r": 0.4}}, covariates=())).cautions
    assert "more than age or sex: neither was removed" in caution


def test_classes_are_judged_by_auc_against_a_half():
    own = {"r": 0.3, "auc": 0.58, "auc_low_cv": 0.45, "auc_high_cv": 0.7}
    finding = only(made({"nerve": own}))
    assert "AUC = 0.58, 95 % interval 0.45 to 0.70" in finding.answer
    assert finding.answer.startswith("not distinguishable from chance")
    assert only(made({"nerve": own | {"auc_low_cv": 0.51}})).answer.startswith("NERVE predicts it")


def test_too_few_participants_per_fold_have_no_number():
    finding = only(made({"nerve": {"r": -0.375, "r2": 0.024, "n": 24}}))
    assert "24 participants in 10 folds are 2.4 per fold" in finding.answer
    assert "375" not in f"{finding}"
    assert too_few_sentence(49, 10)
    assert not too_few_sentence(50, 10)
    assert not too_few_sentence(200, 200)  # each participant left out in turn


def test_cautions_shared_by_all_headlines_are_printed_once():
    scores = {"nerve": {"r": 0.4}}
    results = made(scores, targets=("iq", "age"), scope="all")
    (shared,) = shared_cautions(find(results))
    text = "\n".join(findings_text(results))
    assert text.count(shared) == 1
    assert f"For all of these, do not conclude {shared}" in text
    assert shared_cautions(find(made(scores, scope="all"))) == []


def test_the_terminal_and_the_page_have_the_same_sentences(experiment, capsys, monkeypatch):
    monkeypatch.setattr("nerve.report.figures.SECTIONS", {})
    results = load_results(experiment)
    page = render_page(results)
    show_findings(Results.load(experiment))
    said = capsys.readouterr().out
    findings = find(results)
    assert len(findings) == 4
    for finding in findings:
        assert f"{finding.title}: {finding.answer}" in said
        assert finding.answer in page
        for text in finding.cautions:
            assert text in said


def test_a_terminal_prints_no_score_of_too_few_participants(tmp_path, capsys):
    folder = write_folder(
        tmp_path,
        Made(cohorts={"tiny": 6}, targets=["iq"], rows=rows()[1:3], interpretation=False),
    )
    results = Results.load(folder)
    show_scores(results)
    show_findings(results)
    said = capsys.readouterr().out
    assert said.count("no score: n 6 in 2 folds") == 2
    assert "R²" not in said
    assert "tiny, iq: no score is given: 6 participants in 2 folds are 3 per fold" in said.lower()


def test_a_training_run_says_what_it_has_learned():
    errors = {"model": 0.3, "group_mean": 0.4}
    run = EncoderRun("run", pd.DataFrame({"epoch": [1]}), settings={"epochs": 1}, errors=errors)
    finding = only(ReportData(about={"kind": "run"}, encoders=[run]))
    assert "0.75 times the error of the group mean" in finding.answer
    assert finding.cautions == (
        "that the encoder helps to predict anything: no target was predicted here.",
    )
    nothing = replace(run, errors={"model": 0.4, "group_mean": 0.4})
    assert "next to nothing" in only(ReportData(about={"kind": "run"}, encoders=[nothing])).answer


def test_nothing_predicted_has_no_headline():
    assert find(ReportData()) == []
    assert findings_text(ReportData()) == []
