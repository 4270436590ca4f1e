"""What readers look at: tables, figures and one page. Made from tables on disk, without torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["figures", "plot"])
