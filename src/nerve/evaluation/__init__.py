"""From features and a cohort's targets to `Results`, without torch.

Read in this order: `protocol`, `participants` (with `targets`, `relatives` and `folds`),
`covariates`, `feature_sets`, `cross_validation`, `kernel_ridge`, `statistics`, `comparisons`,
`results`, `evaluate`.
"""

from nerve.evaluation.bootstrap import adjusted_p, permutation_p, restricted_permutations
from nerve.evaluation.combat import ComBat
from nerve.evaluation.comparisons import all_comparisons, best_two, compare
from nerve.evaluation.cross_validation import null_correlations, out_of_fold_predictions
from nerve.evaluation.evaluate import EvaluatedCohort, Evaluation, combine, evaluate_features
from nerve.evaluation.feature_sets import FeatureSet
from nerve.evaluation.folds import leave_groups_out, strata_of, stratified_folds
from nerve.evaluation.kernel_ridge import KernelRidge
from nerve.evaluation.participants import Participants, prepare_participants
from nerve.evaluation.protocol import LAMBDAS, Protocol
from nerve.evaluation.protocol_text import participants_summary, protocol_text
from nerve.evaluation.relatives import groups_of
from nerve.evaluation.results import Results, is_results
from nerve.evaluation.rows import Row, line_label
from nerve.evaluation.statistics import motion_table, score_table
from nerve.evaluation.user_features import make_feature_set

__all__ = [
    "LAMBDAS",
    "ComBat",
    "EvaluatedCohort",
    "Evaluation",
    "FeatureSet",
    "KernelRidge",
    "Participants",
    "Protocol",
    "Results",
    "Row",
    "adjusted_p",
    "all_comparisons",
    "best_two",
    "combine",
    "compare",
    "evaluate_features",
    "groups_of",
    "is_results",
    "leave_groups_out",
    "line_label",
    "make_feature_set",
    "motion_table",
    "null_correlations",
    "out_of_fold_predictions",
    "participants_summary",
    "permutation_p",
    "prepare_participants",
    "protocol_text",
    "restricted_permutations",
    "score_table",
    "strata_of",
    "stratified_folds",
]
