"""From features and a cohort's targets to the predictions table, and what may be concluded from it. No torch here."""

from nerve.evaluation.combat import ComBat
from nerve.evaluation.features import FeatureSet, feature_sets
from nerve.evaluation.folds import leave_groups_out, strata_of, stratified_folds
from nerve.evaluation.kernel_ridge import LAMBDAS, KernelRidge
from nerve.evaluation.output import evaluate_to
from nerve.evaluation.permutation import benjamini_hochberg, permutation_p, restricted_permutations
from nerve.evaluation.predict import null_correlations, out_of_fold_predictions
from nerve.evaluation.protocol_text import protocol_text
from nerve.evaluation.run import evaluate, make_settings
from nerve.evaluation.settings import Settings
from nerve.evaluation.statistics import all_comparisons, best_two, compare, motion_table, score_table

__all__ = [
    "LAMBDAS",
    "ComBat",
    "FeatureSet",
    "KernelRidge",
    "Settings",
    "all_comparisons",
    "benjamini_hochberg",
    "best_two",
    "compare",
    "evaluate",
    "evaluate_to",
    "feature_sets",
    "leave_groups_out",
    "make_settings",
    "motion_table",
    "null_correlations",
    "out_of_fold_predictions",
    "permutation_p",
    "protocol_text",
    "restricted_permutations",
    "score_table",
    "strata_of",
    "stratified_folds",
]
