"""What notebooks show: a small table of the numbers that people look at first."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """A title and one line per fact; whatever names hold, nothing of it is taken for HTML.

    Examples
    --------
    >>> facts_html("<b>", {"regions": 400})
    '<table><caption>&lt;b&gt;</caption><tr><th>regions</th><td>400</td></tr></table>'
    """
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in facts.items())
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"
