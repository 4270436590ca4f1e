"""Everything that decides an evaluation, in one place."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nerve.checks import NerveError, one_of
from nerve.evaluation.kernel_ridge import LAMBDAS
from nerve.evaluation.kernels import KERNELS
from nerve.evaluation.landmarks import EXACT_UP_TO, N_LANDMARKS

MOST_RESAMPLES = 100_000  # p and intervals need no more; all are held in memory
PRETRAIN_SCOPES = ("all", "train_folds", "other_people", "none", "not stated")


@dataclass(frozen=True)
class Settings:
    """The evaluation protocol. Defaults follow CBIG's kernel ridge workflow, which the paper cites."""

    targets: tuple[str, ...]
    """Columns to predict; two-class columns get AUC and balanced accuracy too."""
    covariates: tuple[str, ...] = ()
    """Columns regressed from the targets with training-fold coefficients."""
    groups: str | None = None
    """Column of families: kept whole in folds, resampled and permuted whole."""
    site: str | None = None
    """Column of the site: for ComBat, leave-site-out and permutation within sites."""
    leave_site_out: bool = False
    """Whole sites are the folds: each its own, or gathered in `n_folds` when there are more sites."""
    combat: bool = False
    """Harmonise features over sites, fitted on training folds."""
    preserve: tuple[str, ...] = ()
    """Columns whose effects ComBat keeps; age and sex by default."""
    regress_features: bool = False
    """Regress covariates from features too."""
    motion: str | None = "auto"
    """Column of mean framewise displacement, added to the covariates; "auto" looks for it, None leaves it out."""
    non_numeric: str = "refuse"
    """What to do with words in a covariate that otherwise holds numbers: "refuse" them, or count them as "missing"."""
    n_folds: int = 10
    n_repeats: int = 1
    n_inner_folds: int = 5
    kernel: str = "correlation"
    lambdas: tuple[float, ...] = LAMBDAS
    n_components: int = 256
    """Components of the feature set "pca"."""
    exact_up_to: int = EXACT_UP_TO
    """People up to whom kernels of many features are exact; above, they go through `n_landmarks` people (Nyström)."""
    n_landmarks: int = N_LANDMARKS
    seed: int = 42
    """Of folds, bootstrap and permutations."""
    n_bootstrap: int = 1000
    n_permutations: int = 0
    pretrain_scope: str = "not stated"
    """Whether an encoder saw the test people, unlabelled, in pretraining: "all" (the paper) or "train_folds"."""

    def __post_init__(self) -> None:
        one_of("kernel", self.kernel, KERNELS)
        one_of("pretrain_scope", self.pretrain_scope, PRETRAIN_SCOPES)
        one_of("non_numeric", self.non_numeric, ("refuse", "missing"))
        if not self.targets:
            raise NerveError("There are no targets, expected at least one column to predict (targets=['age'], say).")
        if (self.combat or self.leave_site_out) and self.site is None:
            raise NerveError("ComBat and leave-site-out need the column of the site, expected site='site' or the like.")
        if self.combat and self.leave_site_out:
            raise NerveError(
                "ComBat cannot harmonise a site that it has never seen, and leave-site-out tests on such sites: "
                "expected one of the two. Choose ComBat or leave-site-out."
            )
        for name, least in (
            ("n_folds", 2),
            ("n_repeats", 1),
            ("n_inner_folds", 2),
            ("n_components", 1),
            ("n_landmarks", 2),
        ):
            if getattr(self, name) < least:
                raise NerveError(f"{name} is {getattr(self, name)}, expected at least {least}.")
        if self.seed < 0:
            raise NerveError(f"seed is {self.seed}, expected none below 0.")
        for name in ("n_repeats", "n_bootstrap", "n_permutations"):
            if not 0 <= getattr(self, name) <= MOST_RESAMPLES:
                raise NerveError(
                    f"{name} is {getattr(self, name)}, expected at most {MOST_RESAMPLES:,} and none below 0."
                )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def deciding(self) -> dict[str, Any]:
        """The settings that predictions depend on: what may change without predicting again is left out."""
        settled = self.as_dict()
        for name in ("n_bootstrap", "n_permutations", "pretrain_scope"):
            settled.pop(name)
        return settled
