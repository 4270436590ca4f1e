"""`nerve.evaluate` and `nerve evaluate`: what goes in, what comes out, and every refusal in one sentence."""

import shutil

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from tests.evaluation.conftest import planted_cohort
from typer.testing import CliRunner

import nerve
from nerve import NerveError
from nerve.cli import app
from nerve.evaluation import Results, score_table
from nerve.evaluation.evaluate import _p_permuted_networks

pytestmark = pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")
COLUMNS = [
    "cohort",
    "target",
    "row",
    "participant",
    "fold",
    "observed",
    "predicted",
    "observed_raw",
]


def evaluate(*given, n_folds=4, **options):
    """Predictions of `nerve.evaluate` with fewer folds than by default: no claim here needs ten."""
    return nerve.evaluate(*given, n_folds=n_folds, **options).predictions


def test_the_table_has_the_agreed_columns_and_one_row_per_participant_and_target(cohort, features):
    results = nerve.evaluate(
        features, cohort, targets=["score", "patient"], covariates=["age", "sex"]
    )
    table = results.predictions
    assert list(table.columns) == COLUMNS
    assert len(table) == 240
    assert not table.duplicated(["target", "participant"]).any()
    assert np.allclose(
        table.loc[table["target"] == "score", "observed_raw"], cohort.participants["score"]
    )
    scores = results.scores.set_index("target")
    assert scores.loc["score", "r_low"] > 0.2
    assert scores.loc["patient", "auc_low"] > 0.5


@pytest.mark.slow
def test_all_feature_sets_have_the_same_folds(cohort, features):
    table = evaluate(
        {"mine": features, "raw": "raw", "pca": "pca", "covariates": "covariates"},
        cohort,
        "score,partly",
        "age",
    )
    folds = table.pivot(index=["target", "participant"], columns="row", values="fold")
    assert folds.shape[1] == 4
    assert (folds.nunique(axis=1) == 1).all()
    observed = table.pivot(index=["target", "participant"], columns="row", values="observed")
    assert np.allclose(observed["mine"], observed["raw"])


def test_a_missing_target_drops_that_participant_for_that_target_only_with_a_note(cohort, features):
    with pytest.warns(
        nerve._utils.errors.NerveWarning, match=r"partly: \d+ of 120 participants have no value"
    ):
        table = evaluate(features, cohort, ["score", "partly"])
    assert (table["target"] == "score").sum() == 120
    assert (table["target"] == "partly").sum() == cohort.participants["partly"].notna().sum()


def test_targets_of_the_same_participants_are_predicted_the_same_alone_and_together(
    cohort, features
):
    """Missing values of one target must not move another's people into other training sets."""
    together = evaluate(features, cohort, ["score", "partly"], seed=1)
    folds = together[together["target"] == "score"].set_index("participant")["fold"]
    partly = together[together["target"] == "partly"].set_index("participant")["fold"]
    assert (folds[partly.index] == partly).all()


def test_motion_is_a_covariate_by_default_with_a_note(cohort, features):
    with pytest.warns(nerve._utils.errors.NerveWarning, match="mean_fd"):
        with_motion = evaluate(features, cohort, "score")
    without = evaluate(features, cohort, "score", motion=None)
    assert not np.allclose(with_motion["observed"], without["observed"])
    assert np.allclose(without["observed"], without["observed_raw"])


@pytest.mark.slow
def test_a_table_is_joined_by_id_in_any_order_with_the_unmatched_listed(cohort, features, tmp_path):
    table = pd.DataFrame(features, columns=[f"dim{i}" for i in range(10)])
    table.insert(0, "participant_id", cohort.participants["participant_id"])
    shuffled = table.sample(frac=1, random_state=0)
    assert (
        evaluate(shuffled, cohort, "score")
        .drop(columns="row")
        .equals(evaluate(features, cohort, "score").drop(columns="row"))
    )
    part = pd.concat(
        [
            shuffled[shuffled["participant_id"] != "sub-007"],
            table.iloc[[0]].assign(participant_id="sub-999"),
        ]
    )
    part.to_csv(tmp_path / "theirs.tsv", sep="\t", index=False)
    with pytest.warns(nerve._utils.errors.NerveWarning, match="sub-007") as said:
        out = evaluate(tmp_path / "theirs.tsv", cohort, "score")
    assert any("sub-999" in str(one.message) for one in said)
    assert set(out["row"]) == {"theirs"}
    assert len(out) == 119
    assert "sub-007" not in set(out["participant"])


def test_any_estimator_is_trained_inside_each_fold(cohort):
    class OnUpper(LinearRegression):
        def fit(self, people, y):
            return super().fit(people.inputs("upper"), y)

        def predict(self, people):
            return super().predict(people.inputs("upper"))

    table = evaluate({"linear": OnUpper()}, cohort, ["score", "partly"])
    assert set(table["row"]) == {"linear"}
    assert table["predicted"].notna().all()


def test_families_stay_in_one_fold_and_repeats_are_numbered(cohort, features):
    table = evaluate(features, cohort, "score", groups="family", n_folds=5, n_repeats=2)
    assert set(table["repeat"]) == {0, 1}
    family = dict(
        zip(cohort.participants["participant_id"], cohort.participants["family"], strict=True)
    )
    spread = (
        table.assign(family=table["participant"].map(family))
        .groupby(["repeat", "family"])["fold"]
        .nunique()
    )
    assert (spread == 1).all()
    assert len(score_table(table)) == 1


@pytest.mark.slow
def test_sites_can_be_left_out_or_harmonised(cohort, features):
    out = evaluate(features, cohort, "score", site="site", leave_site_out=True)
    site = dict(
        zip(cohort.participants["participant_id"], cohort.participants["site"], strict=True)
    )
    assert out.assign(site=out["participant"].map(site)).groupby("fold")[
        "site"
    ].nunique().tolist() == [1, 1, 1]
    harmonised = evaluate(features, cohort, "score", site="site", combat=True)
    assert not np.allclose(
        harmonised["predicted"], evaluate(features, cohort, "score")["predicted"]
    )
    assert (
        len(
            evaluate(
                "pca", cohort, "score", ["age"], site="site", combat=True, regress_features=True
            )
        )
        == 120
    )


def test_regressing_features_warns_of_confound_leakage(cohort, features):
    with pytest.warns(nerve._utils.errors.NerveWarning, match="leak confounds"):
        evaluate(features, cohort, "score", "age", regress_features=True)


@pytest.mark.parametrize("kernel", ["correlation", "linear", "cosine", "rbf"])
def test_every_kernel_finds_the_planted_signal(cohort, features, kernel):
    table = evaluate(features, cohort, "score", "age", kernel=kernel)
    assert score_table(table, n_bootstrap=0)["r"].item() > 0.4


@pytest.mark.slow
def test_the_same_call_gives_the_same_table(cohort, features):
    first, second = (evaluate(features, cohort, ["score", "partly"], "age,sex") for _ in range(2))
    pd.testing.assert_frame_equal(first, second, check_exact=True)


REFUSALS = {
    "constant": ({"targets": "constant"}, "target 'constant': every value is 5"),
    "all missing": ({"targets": "nothing"}, "target 'nothing': every value is missing"),
    "few": ({"targets": "few"}, "target 'few': there are values for 4 of 120 participants, expected at least one for"),
    "classes": ({"targets": "letters"}, r"class c \(2\) has too few participants"),
    "unknown": ({"targets": "scor"}, "there is no column 'scor'.*Did you mean 'score'"),
    "unknown covariate": ({"targets": "score", "covariates": "agee"}, "Did you mean 'age'"),
    "group": ({"targets": "score", "groups": "half"}, "would not fit one of 10 folds of 12 participants"),
    "kernel": ({"targets": "score", "kernel": "linaer"}, "Did you mean 'linear'"),
    "combat without site": ({"targets": "score", "combat": True}, "need the column of the site"),
    "both": ({"targets": "score", "site": "site", "combat": True, "leave_site_out": True}, "expected one of the two"),
    "no target": ({"targets": []}, "no targets"),
    "folds": ({"targets": "score", "n_folds": 1}, "n_folds is 1, expected a whole number of at least 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_input_is_refused_in_one_sentence(case, cohort, features):
    n = len(cohort)
    cohort.participants = cohort.participants.assign(
        constant=5,
        nothing=np.nan,
        few=np.where(np.arange(n) < 4, np.arange(n), np.nan),
        letters=np.array([*np.resize(list("ab"), n - 2), "c", "c"]),
        half=np.where(np.arange(n) < n // 2, "big", np.arange(n).astype(str)),
    )
    options, sentence = REFUSALS[case]
    with pytest.raises(NerveError, match=sentence):
        nerve.evaluate(features, cohort, **options)


def test_bad_features_are_refused_by_participant_and_column(cohort, features, tmp_path):
    bad = features.copy()
    bad[3, 4] = np.nan
    with pytest.raises(NerveError, match="feature 4 of sub-003 is missing or infinite"):
        evaluate(bad, cohort, "score")
    with pytest.raises(
        NerveError, match=r"shape \(119, 10\), expected one row for each of the 120"
    ):
        evaluate(features[1:], cohort, "score")
    table = pd.DataFrame({"participant_id": ["x1", "x2"], "dim0": [1.0, 2.0]})
    with pytest.raises(NerveError, match="no participant_id matches"):
        evaluate(table, cohort, "score")
    with pytest.raises(NerveError, match="column words is not numeric"):
        evaluate(table.assign(words="a"), cohort, "score")
    with pytest.raises(NerveError, match="Did you mean 'raw'"):
        evaluate("rwa", cohort, "score")
    with pytest.raises(NerveError, match="needs covariates"):
        evaluate("covariates", cohort, "score", motion=None)
    with pytest.raises(NerveError, match=r"connectivity.* of sub-002"):
        cohort.connectivity[2] = np.nan
        evaluate("raw", cohort, "score")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A function that types `nerve evaluate` on the saved cohort and returns what it printed."""
    folder = tmp_path_factory.mktemp("evaluated")
    planted_cohort().save(folder / "cohort")

    def run(*options, features="raw,pca,covariates", targets="score,patient", out="out"):
        call = ["evaluate", str(folder / "cohort"), "--targets", targets, "--features", features, "--out",
                str(folder / out), "--covariates", "age,sex", "--n-bootstrap", "50", "--n-folds", "5",
                *options]  # fmt: skip
        result = CliRunner().invoke(app, call)
        assert result.exit_code == 0, result.output + str(result.exception)
        return result.output

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nerve.report.figures.SECTIONS", {})  # a report without figures
        run.folder, run.out = folder, folder / "out"
        run.said = run()
        yield run


class TestFolder:
    """What `nerve evaluate --out` writes, and that it computes nothing twice."""

    @pytest.mark.slow
    def test_files_agree_with_one_another_and_the_function(self, evaluated, cohort):
        results = Results.load(evaluated.out)
        table = evaluate(
            {"raw": "raw", "pca": "pca"}, cohort, ["score", "patient"], ["age", "sex"], n_folds=5
        )
        written = results.predictions[results.predictions["row"] != "covariates"]
        np.testing.assert_allclose(written["predicted"], table["predicted"], rtol=1e-9)
        assert written["participant"].tolist() == table["participant"].tolist()
        folds = results.folds.set_index("participant")["fold"]
        assert (folds[written["participant"]].to_numpy() == written["fold"]).all()
        rows = [["raw", "reference"], ["pca", "reference"], ["covariates", "reference"]]
        assert results.rows[["row", "kind"]].values.tolist() == rows
        assert len(results.scores) == 6
        assert results.comparisons["best_two"].sum() == 2
        assert {"r_target_motion", "r_prediction_motion", "scope"} <= set(results.scores)
        assert "mean_fd" in evaluated.said
        assert "--motion none" in evaluated.said
        assert results.about["participants"]["toy"]["targets"]["patient"]["classes"] == [
            "no",
            "yes",
        ]
        assert (evaluated.out / "report.html").is_file()

    def test_only_tables_of_participants_name_participants(self, evaluated):
        named = {
            path.name
            for path in evaluated.out.rglob("*")
            if path.is_file() and b"sub-0" in path.read_bytes()
        }
        assert named == {"folds.tsv", "predictions.tsv"}

    def test_the_covariates_row_is_in_no_comparison(self, evaluated):
        results = Results.load(evaluated.out)
        assert set(results.comparisons["line_a"]) | set(results.comparisons["line_b"]) == {
            "raw",
            "pca",
        }
        assert "covariates" in set(results.scores["row"])

    @pytest.mark.slow
    def test_results_are_replaced_and_tables_of_two_evaluations_are_refused(self, evaluated):
        out = shutil.copytree(evaluated.out, evaluated.folder / "again")
        before = (out / "scores.tsv").read_bytes()
        said = evaluated(features="raw,tangent", out="again")
        assert "Tangent space" in said
        first, second = Results.load(evaluated.out), Results.load(out)
        r = [one.scores.set_index(["row", "target"])["r"]["raw"] for one in (first, second)]
        assert r[0].equals(r[1])
        rows = second.rows.set_index("method")
        assert rows.loc["tangent", ["kind", "scope"]].tolist() == ["reference", "train_folds"]
        assert rows.loc["raw", "scope"] == "none"
        assert not (out / "runs").exists()
        (out / "scores.tsv").write_bytes(before)
        with pytest.raises(
            NerveError, match=r"scores\.tsv: it is not the one that protocol\.json belongs to"
        ):
            Results.load(out)

    @pytest.mark.slow
    def test_permutations_give_p_and_q_and_the_protocol_says_what_ran(self, evaluated):
        evaluated("--n-permutations", "19", "--site", "site", "--groups", "family", "--kernel", "cosine", "--combat",
                  features="raw,covariates", out="other")  # fmt: skip
        results = Results.load(evaluated.folder / "other")
        assert results.scores["p"].between(0.05, 1).all()
        assert (results.scores["q"] >= results.scores["p"] - 1e-12).all()
        assert results.nulls.groupby(["target", "row"]).size().tolist() == [19] * 4
        text = (evaluated.folder / "other" / "protocol.md").read_text()
        for words in ("5 folds", "one family kept in one fold", "age, sex, mean_fd", "cosine", "ComBat",
                      "19 permutations", "(scope: none)", "patient (n = 120, yes against no)",
                      "whole family groups"):  # fmt: skip
            assert words in text, words


@pytest.mark.slow
def test_a_trained_model_is_embedded_and_compared_on_the_same_folds(evaluated, tmp_path):
    encoder = nerve.NERVE.from_preset("small", dim=16, depth=1, epochs=1, device="cpu")
    encoder.fit(nerve.Cohort.load(evaluated.folder / "cohort")).save(tmp_path / "first")
    said = evaluated(features=f"raw,{tmp_path / 'first'}", targets="score", out="model")
    assert "(scope: all)" in said  # its data are this cohort: known, not asked
    results = Results.load(evaluated.folder / "model")
    assert results.rows["label"].tolist() == ["Raw FC", "first"]
    assert results.comparisons[["line_a", "line_b", "among"]].values.tolist() == [
        ["first", "raw", "reference"]
    ]


def test_motion_in_words_is_refused(cohort):
    cohort.participants["mean_fd"] = ["0.1#", *["0.2"] * (len(cohort) - 1)]
    with pytest.raises(
        NerveError, match=r"column 'mean_fd' holds '0\.1#', expected mean framewise displacement"
    ):
        evaluate("raw", cohort, ["age"])


@pytest.mark.slow
def test_results_are_the_same_in_memory_and_from_a_folder(cohort, features, tmp_path):
    results = nerve.evaluate(
        {"mine": features, "other": features[:, :5], "raw": "raw"},
        cohort,
        "score,patient",
        groups="family",
        n_folds=4,
        n_bootstrap=100,
    )
    loaded = Results.load(results.save(tmp_path / "out"))
    for name in ("predictions", "scores", "folds"):
        left, right = getattr(results, name), getattr(loaded, name)
        assert list(left.columns) == list(right.columns)
        for column in left.select_dtypes("number"):
            np.testing.assert_allclose(left[column], right[column], rtol=1e-9)
    table = results.compare()
    assert set(table["among"]) == {"methods", "reference"}
    for where in (results, loaded):
        pair = where.compare("mine", "other").set_index("target")
        known = table[table["among"] == "methods"].set_index("target")
        for target, row in known.iterrows():
            sign = 1 if row["line_a"] == "mine" else -1
            assert pair.loc[target, "difference"] == pytest.approx(sign * row["difference"])
            assert pair.loc[target, "p"] == pytest.approx(row["p"])


def test_two_rows_of_one_name_are_refused(cohort):
    with pytest.raises(NerveError, match="Two rows are called Raw FC"):
        evaluate(["raw", "raw"], cohort, "score")


def test_one_p_against_permuted_networks_per_encoder_of_the_method_and_none_for_others():
    rows = pd.DataFrame(
        {
            "row": ["nerve-s1", "nerve-s2", "gate", "raw", *[f"null-{i}" for i in range(5)]],
            "line": ["nerve", "nerve", "gate", "raw", *["null"] * 5],
            "kind": [*["self-supervised"] * 3, "reference", *["null"] * 5],
            "method": ["nerve", "nerve", "gate", "raw", *["nerve"] * 5],
        }
    )
    place = {"cohort": "a", "target": "y"}
    scores = pd.DataFrame(
        [
            {**place, "row": "nerve-s1", "r": 0.1},
            {**place, "row": "nerve-s2", "r": 0.5},
            {**place, "row": "gate", "r": 0.9},
            {**place, "row": "raw", "r": 0.9},
        ]
    )
    null = pd.DataFrame([{**place, "row": f"null-{i}", "r": i / 10} for i in range(5)])
    # the mean over seeds is .3, which .3 and .4 of the five null models reach
    expected = (1 + 2) / (1 + 5)
    p = _p_permuted_networks(scores, null, rows)
    np.testing.assert_allclose(p, [expected, expected, np.nan, np.nan])


def test_without_bootstrap_scores_are_given_and_intervals_are_not(cohort):
    results = nerve.evaluate(["raw", "pca"], cohort, "score", n_bootstrap=0)
    assert np.isfinite(results.scores["r"]).all()
    assert results.scores["r_low"].isna().all()
    assert results.comparisons["p"].isna().all()
    assert np.isfinite(results.comparisons["difference"]).all()


def test_results_that_were_loaded_and_changed_can_be_saved_again(cohort, features, tmp_path):
    results = nerve.evaluate(
        {"mine": features, "other": features[:, :5]}, cohort, "score", n_folds=4, n_bootstrap=20
    )
    loaded = Results.load(results.save(tmp_path / "first"))
    loaded.scores = loaded.scores[loaded.scores["row"] == "mine"].reset_index(drop=True)
    again = Results.load(loaded.save(tmp_path / "second"))
    assert list(again.scores["row"]) == ["mine"]
    assert again.about["id"] != loaded.about["id"]
