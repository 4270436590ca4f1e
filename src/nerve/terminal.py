"""What reaches a terminal: names are shown as text, whatever stands in them."""

from __future__ import annotations

from typing import Any

import rich.console
from rich.text import Text

from nerve.checks import printable


class Console(rich.console.Console):
    """Rich's console, for which text is text: no markup, and no control characters of others'."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"markup": False, "highlight": False} | options))

    def render_str(self, text: str, **options: Any) -> Text:
        """Every string comes through here, those in the cells of a table too."""
        return super().render_str(printable(text), **options)
