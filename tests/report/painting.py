"""Figures painted once, with every word that they hold and the room around it."""

from contextlib import contextmanager

import pytest
from matplotlib.text import Text

from nerve._utils.files import write_json, write_text
from nerve.report import figures
from nerve.report.page import render_page


def paint(results, folder):
    words = {}
    draw_with_caption = figures.draw_with_caption

    def noted(name, results):
        with noting_words() as words[name]:
            return draw_with_caption(name, results)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw_with_caption", noted)
        write_text(folder / "report.html", render_page(results))
    write_json(folder / "words.json", words)


@contextmanager
def noting_words():
    """Every word that is drawn, with its distance from the edges of its figure: in the SVG letters are paths."""
    words, draw_text = [], Text.draw

    def draw_and_note(text, renderer, *args, **options):
        if text.get_visible() and text.get_text():
            box, whole = text.get_window_extent(renderer), text.get_figure(root=True).bbox
            words.append((text.get_text(), [box.x0, box.y0, whole.x1 - box.x1, whole.y1 - box.y1]))
        return draw_text(text, renderer, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "draw", draw_and_note)
        yield words
