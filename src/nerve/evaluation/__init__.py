"""From features and a cohort's targets to the results folder, and what may be concluded from it. No torch here."""

from nerve.evaluation.combat import ComBat
from nerve.evaluation.features import Features, Given, Learned, Predictor, feature_sets
from nerve.evaluation.folds import leave_groups_out, strata_of, stratified_folds
from nerve.evaluation.kernel_ridge import KernelRidge
from nerve.evaluation.people import groups_of
from nerve.evaluation.predict import null_correlations, out_of_fold_predictions
from nerve.evaluation.protocol import LAMBDAS, Protocol
from nerve.evaluation.protocol_text import participants_summary, protocol_text
from nerve.evaluation.resampling import adjusted_p, permutation_p, restricted_permutations
from nerve.evaluation.results import ResultsFolder, is_results, read_results, write_results
from nerve.evaluation.rows import Row, line_label
from nerve.evaluation.run import evaluate
from nerve.evaluation.statistics import (
    all_comparisons,
    best_two,
    compare,
    line_id,
    motion_table,
    score_table,
)

__all__ = [
    "LAMBDAS",
    "ComBat",
    "Features",
    "Given",
    "KernelRidge",
    "Learned",
    "Predictor",
    "Protocol",
    "ResultsFolder",
    "Row",
    "adjusted_p",
    "all_comparisons",
    "best_two",
    "compare",
    "evaluate",
    "feature_sets",
    "groups_of",
    "is_results",
    "leave_groups_out",
    "line_id",
    "line_label",
    "motion_table",
    "null_correlations",
    "out_of_fold_predictions",
    "participants_summary",
    "permutation_p",
    "protocol_text",
    "read_results",
    "restricted_permutations",
    "score_table",
    "strata_of",
    "stratified_folds",
    "write_results",
]
