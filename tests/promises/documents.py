"""What README and documentation tell readers to type."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if not {"_build", "gallery"} & set(path.relative_to(ROOT).parts)
)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(text, *languages):
    """The fenced blocks of a page in these languages, ``""`` for none."""
    return [body for language, body in _BLOCK.findall(text) if language in languages]


def shell_commands(text):
    """Every command of the shell blocks as a list of words; lines that end in a backslash are joined."""
    lines = "\n".join(blocks(text, "", "bash")).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := _words(line))]


def nerve_commands(text):
    """The words after `nerve`, also behind torchrun, srun and the like."""
    found = []
    for words in shell_commands(text):
        if words[0] in ("nerve", "srun", "torchrun") and "nerve" in words:
            found.append(words[words.index("nerve") + 1 :])
    return found


def in_one_epoch(code):
    """Python of a page with every training cut to one epoch, on few simulated participants."""
    return re.sub(
        r"(epochs\"?[=:] ?)\d+", r"\g<1>1", re.sub(r"(simulate_cohorts?\()\d{3,}", r"\g<1>48", code)
    )


def _words(line):
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # prose in a block
        return []
