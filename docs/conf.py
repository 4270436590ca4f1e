"""The documentation site: `make docs`, no network needed."""

import os
import sys
from importlib.metadata import version as installed
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # the examples are small: more threads wait for each other

project = "nerve"
author = "The nerve developers"
release = version = installed("nerve-fc")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathml",
    "sphinx_gallery.gen_gallery",
    "command_reference",
    "plain_docstrings",
]
exclude_patterns = ["_build", "gallery/GALLERY_HEADER.rst"]
default_role = "code"

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_ivar = True

# `NERVE_DOCS_GALLERY=0 make docs` builds the pages without running the examples
RUN_EXAMPLES = os.environ.get("NERVE_DOCS_GALLERY", "1") != "0"
sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "plot_gallery": RUN_EXAMPLES,
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "min_reported_time": 1e9,
    "write_computation_times": False,
}

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"nerve {release}"
html_static_path = ["_static"]
html_js_files = ["versions.js"]  # a list of the versions, where several are published
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
