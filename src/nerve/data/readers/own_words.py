"""What a file of arrays says about itself: ids of its participants and labels of its regions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nerve._utils.errors import listed, problem
from nerve.data.readers.arrays import Shapes, array_shapes, last_name, read_array, word_lists
from nerve.data.readers.base import Options
from nerve.data.readers.ids import normal_id

_IDS = re.compile(
    r"(participants?|subjects?|subj?s?|sub|src_subject|people)"
    r"(_?(ids?|keys?|list|names?|labels?|codes?))?|ids?|eids?|file_?ids?|subjectkeys?"
)
_LABELS = re.compile(
    r"(rois?|regions?|nodes?|parcels?|parcellation|atlas|areas?|struct|networks?_nodes?)"
    r"(_?(ids?|labels?|names?|list))?|labels?|names?"
)


def own_ids(path: Path, n_participants: int, options: Options) -> tuple[str, ...] | None:
    """The ids that a file holds beside the arrays of many participants.

    Parameters
    ----------
    path : Path
    n_participants : int
    options : Options
        With the user's ids, which must be those of the file.

    Returns
    -------
    tuple of str, or None
        None where the file holds no list of ids of this length.
    """
    ids_of_name = {}
    for name, words in _lists(path).items():
        ids = tuple(map(normal_id, words))
        is_list_of_ids = _IDS.fullmatch(last_name(name)) and len(set(ids)) == n_participants
        if is_list_of_ids and len(ids) == n_participants:
            ids_of_name[name] = ids
    different = set(ids_of_name.values())
    if not different:
        return None
    if "ids" in options.typed and options.ids is not None:
        if len(different) > 1 or tuple(options.ids) in different:
            return tuple(options.ids)
        (name, ids), *_ = ids_of_name.items()
        raise problem(
            path,
            f"its own ids ({name}: {listed(ids, most=3)}) are not those of --ids "
            f"({listed(options.ids, most=3)})",
            remedy="Leave --ids out; --id-map FILE renames participants for the table.",
        )
    if len(different) > 1:
        lists = [f"{name}: {listed(ids, most=2)}" for name, ids in ids_of_name.items()]
        raise problem(
            path,
            f"it holds {len(different)} lists of ids ({'; '.join(lists)})",
            expected="one",
            remedy="Give the ids in the order of the file: --ids FILE, one per line.",
        )
    return different.pop()


def own_labels(path: Path, n_regions: int) -> tuple[str, ...] | None:
    """The labels of the regions that a file holds beside its arrays.

    Parameters
    ----------
    path : Path
    n_regions : int

    Returns
    -------
    tuple of str, or None
        None where the file holds no list of labels of this length.
    """
    for name, words in _lists(path).items():
        is_list_of_labels = _LABELS.fullmatch(last_name(name)) is not None
        if is_list_of_labels and len(words) == n_regions and len(set(words)) == n_regions:
            return tuple(words)
    return None


def _lists(path: Path) -> dict[str, Sequence[str]]:
    """The lists of words of a file, and of whole numbers that are named as ids or labels."""
    lists: dict[str, Sequence[str]] = {}
    for name, words in word_lists(path).items():
        if len(words) == 1 and "\n" in words[0]:  # lines of one text
            words = tuple(line.strip() for line in words[0].splitlines() if line.strip())
        lists[name] = words
    for name, shape in _short_arrays(array_shapes(path)).items():
        is_named = _IDS.fullmatch(last_name(name)) or _LABELS.fullmatch(last_name(name))
        if not is_named:
            continue
        numbers = np.ravel(read_array(path, name))
        if len(numbers) == max(shape) and np.all(numbers % 1 == 0):
            lists[name] = tuple(f"{number:.0f}" for number in numbers.astype(float))
    return lists


def _short_arrays(shapes: Shapes) -> Shapes:
    """The arrays of one axis, as MATLAB writes them too (1 x n, n x 1)."""
    return {
        name: shape for name, shape in shapes.items() if shape and np.prod(shape) == max(shape) > 1
    }
