"""Rich's console for text that may contain names given by users."""

from __future__ import annotations

from typing import Any

import rich.console
from rich.text import Text

from nerve._utils.errors import printable


class Console(rich.console.Console):
    """Rich's console without markup, in which control characters are written as escapes.

    Parameters
    ----------
    **options
        Passed to `rich.console.Console`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"markup": False, "highlight": False} | options))

    def render_str(self, text: str, **options: Any) -> Text:
        """Render text; every string comes through here, those in the cells of a table too."""
        return super().render_str(printable(text), **options)
