"""Everything that decides an evaluation: the fields of `Protocol`.

The same names are used in Python, on the command line, in experiment files and in the report. To
add a field: write it here, and read it where it matters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from nerve._utils.errors import NerveError, did_you_mean, listed, one_of, problem
from nerve._utils.privacy import printable

KERNELS = ("correlation", "linear", "cosine", "rbf")
# fmt: off
LAMBDAS = (
    0, 1e-5, 1e-4, 1e-3, 0.004, 0.007, 0.01, 0.04, 0.07, 0.1, 0.4, 0.7,
    1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 10, 15, 20,
)
# fmt: on

# values of `motion` that are not names of columns
AUTO = "auto"
NONE = "none"

# all resamples are held in memory
_MOST_RESAMPLES = 100_000


def _field(default: Any, description: str, minimum: int | None = None) -> Any:
    """A field with its description; a field with a minimum takes whole numbers."""
    return field(default=default, metadata={"help": description, "minimum": minimum})


@dataclass(frozen=True)
class Protocol:
    """How predictions are made and tested.

    Every field is a parameter, described beside it below and by ``nerve evaluate --help``. Defaults
    follow CBIG's kernel ridge workflow, which the paper cites.

    Examples
    --------
    >>> Protocol(targets="age, sex", n_folds=5).targets
    ('age', 'sex')
    """

    targets: tuple[str, ...] = _field(
        (), "Columns to predict; those with classes get AUC and balanced accuracy."
    )
    classes: tuple[str, ...] = _field(
        (), "Targets whose numbers are names of three or more classes; words always are."
    )
    covariates: tuple[str, ...] = _field(
        (), "Columns regressed from the targets with training-fold coefficients."
    )
    groups: str | None = _field(
        None, "Column of families: kept whole in folds, resampled and permuted whole."
    )
    site: str | None = _field(
        None, "Column of the site: for ComBat, leave-site-out and permutation within sites."
    )
    leave_site_out: bool = _field(
        False,
        "Folds are whole sites; if there are more than n_folds sites, several share a fold.",
    )
    combat: bool = _field(
        False, "Harmonise features over sites by ComBat, fitted on training folds."
    )
    combat_on: str | None = _field(
        None,
        "Participants that ComBat learns from, as column=value (diagnosis=control); all by "
        "default.",
    )
    preserve: tuple[str, ...] = _field(
        (), "Columns whose effects ComBat keeps; by default those called age and sex."
    )
    regress_features: bool = _field(False, "Regress covariates from features too.")
    motion: str = _field(
        AUTO,
        "Column of mean framewise displacement, added to the covariates; auto looks for it, "
        "none leaves it out.",
    )
    non_numeric: str = _field(
        "refuse", "Words in a covariate of numbers: refuse them, or count them as missing."
    )
    confirmed_values: tuple[str, ...] = _field(
        (), "Columns whose far-off repeated values (999, -9) are real, not codes for missing."
    )
    n_folds: int = _field(10, "Outer folds.", 2)
    n_repeats: int = _field(1, "Repeats with other folds.", 1)
    n_inner_folds: int = _field(5, "Inner folds, for the penalty λ.", 2)
    kernel: str = _field("correlation", f"Kernel of the ridge: {', '.join(KERNELS)}.")
    lambdas: tuple[float, ...] = _field(LAMBDAS, "Values of λ to choose from.")
    n_components: int = _field(256, "Components of the row pca.", 1)
    seed: int = _field(42, "Seed of folds, bootstrap and permutations.", 0)
    n_bootstrap: int = _field(1000, "Resamples of participants for intervals and comparisons.", 0)
    n_permutations: int = _field(0, "Permutations of each target for its p; 0 for none.", 0)
    labels: tuple[int, ...] = _field(
        (), "Numbers of labelled participants for learning curves: 25, 50, 100, say."
    )
    n_draws: int = _field(20, "Draws of labelled participants per point of a learning curve.", 1)
    pretrain_scope: str = _field(
        "train_folds",
        "What learns without labels is fitted on training folds (train_folds) or on all "
        "participants (all).",
    )

    def __post_init__(self) -> None:
        for name in ("targets", "classes", "covariates", "preserve", "confirmed_values"):
            object.__setattr__(self, name, as_names(getattr(self, name)))
        object.__setattr__(self, "lambdas", _as_numbers("lambdas", self.lambdas, minimum=0.0))
        counts = _as_numbers("labels", self.labels, minimum=5.0) if self.labels else ()
        object.__setattr__(self, "labels", tuple(sorted({int(count) for count in counts})))
        object.__setattr__(self, "motion", self.motion or NONE)

        one_of("kernel", self.kernel, KERNELS)
        one_of("non_numeric", self.non_numeric, ("refuse", "missing"))
        one_of("pretrain_scope", self.pretrain_scope, ("all", "train_folds"))
        if not self.targets:
            raise NerveError(
                "There are no targets, expected at least one column to predict "
                "(targets=['age'], say)."
            )
        not_targets = [name for name in self.classes if name not in self.targets]
        if not_targets:
            raise NerveError(
                f"classes names {listed(not_targets)}, expected some of the targets: "
                f"{listed(self.targets)}."
            )
        if (self.combat or self.leave_site_out) and self.site is None:
            raise NerveError(
                "combat and leave_site_out need the column of the site, "
                "expected site='site' or the like."
            )
        if self.combat_on is not None:
            column, value = self.combat_subset
            if not (self.combat and column and value):
                raise NerveError(
                    f"combat_on is {self.combat_on!r}, expected column=value (diagnosis=control, "
                    "say) together with combat."
                )
        if self.combat and self.leave_site_out:
            raise NerveError(
                "ComBat cannot harmonise a site that it has never seen, and leave_site_out tests "
                "on such sites: expected one of the two. Choose combat or leave_site_out."
            )
        for name, protocol_field in FIELDS.items():
            minimum = protocol_field.metadata["minimum"]
            if minimum is not None:
                _check_whole_number(name, getattr(self, name), minimum)
        for name in ("n_repeats", "n_bootstrap", "n_permutations"):
            value = getattr(self, name)
            if value > _MOST_RESAMPLES:
                raise NerveError(f"{name} is {value:,}, expected at most {_MOST_RESAMPLES:,}.")

    @property
    def combat_subset(self) -> tuple[str, str]:
        """Column and value of `combat_on`; two empty texts without it."""
        column, _, value = (self.combat_on or "").partition("=")
        return column.strip(), value.strip()

    @property
    def columns(self) -> list[str]:
        """All columns of the participants table that the protocol names, except motion."""
        names = [*self.targets, *self.covariates, *self.preserve]
        for name in (self.groups, self.site, self.combat_subset[0]):
            if name:
                names.append(name)
        return names

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def prediction_settings(self) -> dict[str, Any]:
        """The fields that predictions depend on: all but the number of bootstrap resamples."""
        values = self.as_dict()
        del values["n_bootstrap"]
        return values


# name of each field → the field; `metadata["help"]` is its description
FIELDS = {protocol_field.name: protocol_field for protocol_field in fields(Protocol)}


def known_fields(values: Mapping[str, Any], where: object) -> dict[str, Any]:
    """Check that every name is a field of the protocol; an error suggests the nearest name.

    Parameters
    ----------
    values : mapping
        Name of a field → its value.
    where : object
        What the error is about: a file, say.

    Returns
    -------
    dict
        The values.
    """
    for name in values:
        if name not in FIELDS:
            raise problem(
                where,
                f"there is no {name!r} in a protocol",
                expected=f"one of {listed(FIELDS, most=40)}",
                remedy=did_you_mean(str(name), FIELDS).strip(),
            )
    return dict(values)


def as_names(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """Make a tuple of column names; none is named twice.

    Parameters
    ----------
    names : str or iterable of str, optional
        A list, one name, or names separated by commas.

    Returns
    -------
    tuple of str
        The names.
    """
    if names is None:
        return ()
    parts = names.split(",") if isinstance(names, str) else list(names)
    cleaned = [printable(name).strip() for name in parts if str(name).strip()]
    if names and not cleaned:
        raise NerveError(f"{names!r} holds no column names, expected names separated by commas.")
    return tuple(dict.fromkeys(cleaned))


def _as_numbers(name: str, values: Any, minimum: float) -> tuple[float, ...]:
    parts = values.split(",") if isinstance(values, str) else values
    try:
        numbers = tuple(float(value) for value in parts)
    except (TypeError, ValueError) as error:
        raise NerveError(f"{name} is {values!r}, expected numbers separated by commas.") from error
    if not numbers or not all(minimum <= number < math.inf for number in numbers):
        raise NerveError(
            f"{name} is {values!r}, expected at least one number, none below {minimum:g} or "
            "infinite."
        )
    return numbers


def _check_whole_number(name: str, value: Any, minimum: int) -> None:
    is_whole_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole_number or value < minimum:
        raise NerveError(f"{name} is {value!r}, expected a whole number of at least {minimum}.")
