"""The error of a method that is used before it was fitted, which is scikit-learn's as well as ours.

Not in `checks`: that is imported by everything, scikit-learn only by what computes.
"""

from __future__ import annotations

from sklearn.exceptions import NotFittedError

from nerve._utils.errors import NerveError


class NotFitted(NerveError, NotFittedError):
    """`transform`, `predict` or `save` was called before `fit`."""
