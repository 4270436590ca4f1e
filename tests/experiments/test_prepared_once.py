"""Features are made ready once per row, whatever is computed of them."""

from nerve.evaluation.feature_sets import NAMED, RawFC
from nerve.experiments.experiment import Experiment


def test_features_are_prepared_once_for_predictions_permutations_curves_and_sites(
    make_config, tmp_path, monkeypatch
):
    prepared = []

    class CountedRawFC(RawFC):
        def prepare(self, cohort, participants, protocol):
            prepared.append(cohort.name)
            return super().prepare(cohort, participants, protocol)

    monkeypatch.setitem(NAMED, "raw", CountedRawFC)
    protocol = {"n_permutations": 3, "labels": [10], "n_draws": 2, "site": "site"}
    cohorts = {
        "sites": {
            "simulate": {"n": 40, "timepoints": 40, "sites": 2},
            "targets": ["p_factor", "null"],
        }
    }
    config = make_config([{"method": "raw"}], cohorts=cohorts, protocol=protocol)
    results = Experiment.prepare(config, tmp_path / "out").run(jobs=1)
    assert prepared == ["sites"]
    assert len(results.nulls) > 0
    assert len(results.curves) > 0
    assert results.scores["site_accuracy"].notna().all()
