"""Tables, figures and the page report.html, made from the tables of a results folder, without torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["figures", "plot"])
