"""Words of ours that a reader of the page meets, each with a tooltip and a line of the glossary."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

# In the order of the glossary.
TERMS = {
    "target": "what is predicted: a score, or classes such as patients and controls.",
    "row": "a line of a table of results: a method with its settings, or features that were "
    "given, and what is predicted from it.",
    "feature set": "the numbers per participant that a row predicts from.",
    "reference": "a row without a trained network (raw FC, PCA, tangent space). A trained method "
    "should do better than the best reference.",
    "covariates": "columns such as age and sex, whose effect is removed from the target as the "
    "training participants show it.",
    "fold": "a part of the participants that is predicted by a model trained on the other parts.",
    "interval": "where the true value is expected in 95 of 100 cohorts like this one; it knows "
    "that participants are tested and also train the models of other folds. The paper's interval, "
    "in the paper's table, does not, and is too narrow.",
    "chance": "what a model without any information would reach in new participants: r = 0, "
    "AUC = 0.5. The r of all folds together is then below 0 on average in a small cohort.",
    "r": "Pearson's correlation of observed and predicted values of all folds together. Where "
    "nothing can be predicted it is below 0 on average: about -0.2 to -0.03 in 60 participants, "
    "nearer to 0 in more.",
    "AUC": "the share of pairs, one participant of either class, that predictions put in the "
    "right order; 0.5 is chance.",
    "R²": "the share of the target's variance that is predicted; negative where the mean would "
    "have been the better guess.",
    "p": "how often chance alone gives such a result.",
    "q": "p corrected for the number of targets that were looked at.",
    "pretraining": "the training of an encoder on FC alone, without any target.",
    "encoder": "a network that turns FC into features.",
    "scope": "which of the tested participants a row had seen while it was pretrained: their FC, "
    "never their scores.",
    "view": "the matrix that NERVE cuts into patches: FC itself (fc), or how FC departs from that "
    "of the group (tangent, shrunk).",
    "patch": "the part of the matrix between two networks (or within one); it becomes one token.",
    "preset": "a named set of settings: paper, default or small.",
    "seed": "the number that random choices follow from. Maps that seeds do not share say nothing "
    "about the brain.",
    "run": "one piece of work of an experiment: an encoder that is trained, or targets that are "
    "predicted.",
    "mean FD": "mean framewise displacement: how much a participant moved, in mm.",
    "rollout": "attention followed through all layers.",
    "occlusion": "a region or patch is replaced by the mean of other participants, and what "
    "changes is measured.",
}
# Words that have other meanings too: tooltips in headers of tables, no links in sentences.
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
    'scope: which of the tested participants a'
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
    its &lt;<a class="term" href="#term-scope" title="which of the tested participants a row had \
seen while it was pretrained: their FC, never their scores.">scope</a>&gt;
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
