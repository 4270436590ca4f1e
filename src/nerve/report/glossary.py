"""The glossary: terms of this project, each with a tooltip on the page and a line at its end."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

# In the order of the glossary.
TERMS = {
    "target": "what is predicted: a score, or classes such as patients and controls.",
    "row": "a line of a table of results: the scores of a method with its settings, or of features "
    "that were given.",
    "feature set": "the numbers per participant that a row predicts from.",
    "reference": "a row without a trained network (raw FC, PCA, tangent space). A trained method "
    "should do better than the best reference.",
    "covariates": "columns such as age and sex. Their effect on the target, estimated in the "
    "training participants, is removed from the target.",
    "fold": "a part of the participants that is predicted by a model trained on the other parts.",
    "mean r of the folds": "Pearson's correlation within each fold, averaged over folds. Where "
    "nothing can be predicted it is 0 on average, in small cohorts too.",
    "interval": "the range in which the true value is expected in 95 of 100 cohorts like this one. "
    "It takes into account that the participants of one fold train the models of the others. The "
    "paper's interval, in the paper's table, does not, and is too narrow.",
    "chance": "the score of a model without any information: r = 0 or AUC = 0.5 in new "
    "participants. In a small cohort, r of all folds together is then below 0 on average.",
    "r": "Pearson's correlation of observed and predicted values, all folds together. Where "
    "nothing can be predicted it is below 0 on average: about -0.2 to -0.03 with 60 participants, "
    "nearer to 0 with more.",
    "AUC": "area under the ROC curve: of all pairs of one participant per class, the share that "
    "the predictions put in the right order; 0.5 is chance.",
    "R²": "the share of the target's variance that is predicted; negative where predicting the "
    "mean for all participants would have been better.",
    "p": "how often chance alone gives a result at least as strong.",
    "q": "p corrected for the number of targets that were tested.",
    "pretraining": "the training of an encoder on FC alone, without any target.",
    "encoder": "a network that turns FC into features.",
    "scope": "which of the test participants were in the pretraining data of a row: with their "
    "FC, never with their scores.",
    "view": "the matrix that NERVE cuts into patches: FC itself (fc), or how FC differs from the "
    "FC of the group (tangent, shrunk).",
    "patch": "the part of the matrix between two networks (or within one); it becomes one token.",
    "preset": "a named set of settings: paper, default or small.",
    "seed": "the number from which all random choices are derived. A map that differs between "
    "seeds says nothing about the brain.",
    "run": "one piece of work of an experiment: an encoder that is trained, or targets that are "
    "predicted.",
    "mean FD": "mean framewise displacement: how much a participant moved, in mm.",
    "rollout": "attention combined over all layers.",
    "occlusion": "a region or patch is replaced by the mean of other participants, and the effect "
    "of this is measured.",
}
# Words with other meanings in sentences: they have a tooltip in headers of tables, but no link.
_NOT_LINKED = ("row", "run", "r", "p", "q")
_WORDS = {term.casefold(): term for term in TERMS}
_PATTERN = re.compile(rf"\b({'|'.join(map(re.escape, TERMS))})(?:s|es)?(?!\w)", re.IGNORECASE)


def term_id(term: str) -> str:
    """The id of a term's line in the glossary."""
    return "term-" + re.sub(r"\W+", "-", term.casefold())


def explain(text: str) -> str:
    """The meaning of the first term in a text, such as the header of a column; empty without one.

    Parameters
    ----------
    text : str
        Such as "scope of pretraining".

    Returns
    -------
    str
        The term and its meaning.

    Examples
    --------
    >>> explain("scope of pretraining")[:41]
    'scope: which of the test participants wer'
    >>> explain("minutes")
    ''
    """
    match = _PATTERN.search(text)
    if match is None:
        return ""
    term = _WORDS[match[1].casefold()]
    return f"{term}: {TERMS[term]}"


def link_terms(text: object) -> Markup:
    """Escape a text, and link the first use of each term to the glossary, with a tooltip.

    Parameters
    ----------
    text : object
        Any text; what stands in backticks is left as it is.

    Returns
    -------
    Markup
        For a page.

    Examples
    --------
    >>> print(link_terms("its <scope>"))
    its &lt;<a class="term" href="#term-scope" title="which of the test participants were in the \
pretraining data of a row: with their FC, never with their scores.">scope</a>&gt;
    """
    linked = set()

    def link(match: re.Match[str]) -> str:
        term = _WORDS[match[1].casefold()]
        if term in _NOT_LINKED or term in linked:
            return match[0]
        linked.add(term)
        meaning = escape(TERMS[term])
        return f'<a class="term" href="#{term_id(term)}" title="{meaning}">{match[0]}</a>'

    parts = re.split(r"(`[^`]*`)", str(escape(text)))
    parts[::2] = [_PATTERN.sub(link, part) for part in parts[::2]]
    return Markup("".join(parts))
