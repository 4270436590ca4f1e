"""Files of several measures of the same participants in one folder: FC beside streamline counts.

They are two matrices of one participant, never of two. Which measure is read must be said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from nerve._utils.errors import NerveError, listed
from nerve.data.readers.base import Options
from nerve.data.readers.names import path_below

# what a word of a name measures → the words
_MEASURES = {
    "functional connectivity": r"fc|rsfc|rs_?fmri|fmri|bold|func|functional|pearson|corr\w*",
    "weighted fractional anisotropy": r"wfa|fa|meanfa",
    "structural connectivity": r"sc|dwi|dti|structural|struct|tracts?",
    "streamline counts": r"counts?|n?streamlines?|nos|sift2?|fibers?",
    "streamline lengths": r"lengths?|meanlength|edgelengths?|tractlengths?",
    "diffusivity": r"md|rd|ad|adc",
    "volumes of tracts": r"volumes?|vol",
}
_MARKS = re.compile(r"([/_\-. ])")


def refuse_several_measures(paths: Sequence[Path], source: Path, options: Options) -> None:
    """Refuse files that differ in nothing but a word for what they measure.

    Parameters
    ----------
    paths : sequence of Path
        Those that would be read.
    source : Path
    options : Options
        With the `id_pattern`: files that it does not match are not read.
    """
    below = [path_below(path, source) for path in paths]
    if options.id_pattern is not None:
        below = [path for path in below if re.search(options.id_pattern, path)]
    groups: dict[str, dict[str, str]] = {}
    for path in below:
        measure, rest = _measure_in(path)
        if measure:
            groups.setdefault(rest, {})[measure] = path
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        return
    example = several[0]
    choices = []
    for measure in example:
        of_measure = [path for path in below if _measure_in(path)[0] == measure]
        choices.append(f"{measure} with --id-pattern '{_pattern_of(of_measure)}'")
    raise NerveError(
        f"{source}: {listed(example.values(), most=4)} differ only in a word for what they hold "
        f"({listed(example)}), expected one measure of each participant. Say which: "
        f"{'; or '.join(choices)} (and --measure NAME where it is no correlation)."
    )


def _measure_of_word(word: str) -> str:
    for measure, pattern in _MEASURES.items():
        if re.fullmatch(pattern, word, re.IGNORECASE):
            return measure
    return ""


def _measure_in(path: str) -> tuple[str, str]:
    """The measure that a path names, and the path without words for measures."""
    measures = []
    rest = []
    for word in _MARKS.split(path):
        measure = _measure_of_word(word)
        if measure:
            measures.append(measure)
        else:
            rest.append(word)
    # a modality may stand above the measure: dwi/…_count.csv
    return (measures[-1] if measures else ""), "".join(rest)


def _pattern_of(paths: Sequence[str]) -> str:
    """A pattern that matches these paths alone, with the first part that differs as the id."""
    if all("sub-" in path for path in paths):
        word = next(word for word in _MARKS.split(paths[0])[::-1] if _measure_of_word(word))
        session = "(?:[_/]ses-(?P<session>[^_/]+))?"
        return rf"sub-(?P<id>[^_/]+){session}.*[/_\-. ]{re.escape(word)}[/_\-. ]"
    split = [_MARKS.split(path) for path in paths]
    if len({len(words) for words in split}) > 1:
        word = next(word for word in split[0][::-1] if _measure_of_word(word))
        return rf"(?:^|/)(?P<id>[^/]+?)[_\-. ]{re.escape(word)}[_\-. ]"
    columns = list(zip(*split, strict=True))
    differing = [number for number, words in enumerate(columns) if len(set(words)) > 1]
    if not differing:  # one participant
        own = [n for n, word in enumerate(split[0]) if word and not _measure_of_word(word)]
        differing = own[:1]
    pattern = ""
    for number, words in enumerate(columns):
        if number == differing[0]:
            pattern += r"(?P<id>[^/_\-. ]+)"
        elif number in differing:
            pattern += r"[^/_\-. ]+"
        else:
            pattern += re.escape(words[0])
    return f"^{pattern}$"
