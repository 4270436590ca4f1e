"""Make docstrings, which are written to be read in an editor, valid reStructuredText.

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
    # A section begins with its title, one line above the rule.
    titles = [i - 1 for i, line in enumerate(lines) if i and _SECTION.match(line.strip())]
    end = titles[0] if titles else len(lines)
    converted = []
    is_inside = False  # a literal block
    for line in lines[:end]:
        is_indented = line.startswith("    ")
        follows_blank_line = not converted or not converted[-1].strip()
        if is_indented and not is_inside and follows_blank_line:
            converted += ["::", ""]
            is_inside = True
        elif line.strip() and not is_indented:
            if is_inside and not follows_blank_line:
                converted.append("")
            is_inside = False
        converted.append(line)
    lines[:] = converted + lines[end:]


def escape_marks(app, what, name, obj, options, lines):
    """After napoleon: escape what only looks like markup, outside code."""
    is_literal = False
    is_doctest = False
    for i, line in enumerate(lines):
        is_blank = not line.strip()
        is_doctest = line.lstrip().startswith(">>>") or (is_doctest and not is_blank)
        is_literal = line.strip() == "::" or (is_literal and (is_blank or line.startswith("    ")))
        if is_doctest or is_literal:
            continue
        # `split` returns text and code in turns.
        parts = _CODE.split(line)
        parts[::2] = [_escaped(text) for text in parts[::2]]
        lines[i] = "".join(parts)


def _escaped(text):
    text = re.sub(r"(?<=[^\W_])_(?![\w`])", r"\\_", text.replace("\\_", "_"))
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def setup(app):
    """Registered by Sphinx."""
    # Napoleon has priority 500.
    app.connect("autodoc-process-docstring", keep_indented_blocks, priority=400)
    app.connect("autodoc-process-docstring", escape_marks, priority=600)
    return {"parallel_read_safe": True}
