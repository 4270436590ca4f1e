"""Kernel ridge regression and its workflow written literally from the formulas, slowly and with inverses."""

import numpy as np


def kernel_ridge(kernel, train, test, y, penalty):
    """β = (1ᵀK_r⁻¹1)⁻¹ 1ᵀK_r⁻¹y,  α = K_r⁻¹(y − β),  K_test α + β, one target."""
    inverse = np.linalg.inv(kernel[np.ix_(train, train)] + penalty * np.eye(len(train)))
    ones = np.ones(len(train))
    beta = (ones @ inverse @ y[train]) / (ones @ inverse @ ones)
    alpha = inverse @ (y[train] - beta)
    return kernel[np.ix_(test, train)] @ alpha + beta


def predictive_cod(observed, predicted, training):
    return 1 - ((observed - predicted) ** 2).sum() / ((observed - training.mean()) ** 2).sum()


def nested(kernel, train, test, y, inner_folds, penalties):
    """Choose the penalty by mean predictive COD over inner folds of the training people, then predict."""
    scores = []
    for penalty in penalties:
        each = []
        for fold in np.unique(inner_folds):
            fit, check = train[inner_folds != fold], train[inner_folds == fold]
            each.append(
                predictive_cod(y[check], kernel_ridge(kernel, fit, check, y, penalty), y[fit])
            )
        scores.append(np.mean(each))
    best = penalties[int(np.argmax(scores))]
    return kernel_ridge(kernel, train, test, y, best), best
