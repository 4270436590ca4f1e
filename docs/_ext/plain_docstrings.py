"""Our docstrings are written to be read in an editor; this makes them valid reStructuredText.

An indented block of the opening prose is a formula or a listing and is kept line by line; `name_`, `|M|` and `U*` are
text, not markup.
"""

import re

_SECTION = re.compile(r"^-{3,}$")
_CODE = re.compile(
    r"(``.+?``|`[^`]+`|:\w+:`[^`]+`|:(?:param|ivar|vartype|type|rtype|returns|raises)[^:]*:)"
)


def keep_indented_blocks(app, what, name, obj, options, lines):
    """Before napoleon: turn indented blocks ahead of the first section into literal blocks."""
    ends = [i - 1 for i, line in enumerate(lines) if i and _SECTION.match(line.strip())]
    end = ends[0] if ends else len(lines)
    made, inside = [], False
    for line in lines[:end]:
        indented = line.startswith("    ")
        if indented and not inside and (not made or not made[-1].strip()):
            made += ["::", ""]
            inside = True
        elif line.strip() and not indented:
            if inside and made[-1].strip():
                made.append("")
            inside = False
        made.append(line)
    lines[:] = made + lines[end:]


def escape_marks(app, what, name, obj, options, lines):
    """After napoleon: escape what only looks like markup, outside code."""
    literal = doctest = False
    for i, line in enumerate(lines):
        doctest = line.lstrip().startswith(">>>") or (doctest and bool(line.strip()))
        literal = line.strip() == "::" or (
            literal and (not line.strip() or line.startswith("    "))
        )
        if not (doctest or literal):
            lines[i] = "".join(
                part if k % 2 else _escaped(part) for k, part in enumerate(_CODE.split(line))
            )


def _escaped(text):
    text = re.sub(r"(?<=[^\W_])_(?![\w`])", r"\\_", text.replace("\\_", "_"))
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def setup(app):
    """Registered by Sphinx."""
    app.connect(
        "autodoc-process-docstring", keep_indented_blocks, priority=400
    )  # napoleon comes at 500
    app.connect("autodoc-process-docstring", escape_marks, priority=600)
    return {"parallel_read_safe": True}
