"""Files of settings that say what nobody expects: every value replaced, every key misspelt, YAML at its worst."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import yaml

Generator = np.random.Generator
BOMB = (
    "a: &a [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefghi", "bcdefghij", strict=True))
    + "{key}: *j\n"
)  # fmt: skip

_NESTED = "&a [x, x, x, x, x, x, x, x, x]" + "".join(
    f", &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefghi", "bcdefghij", strict=True)
)

VALUES: list[Any] = [
    None, "", " ", "abc", "../../escaped", "/nowhere/at/all", "a/b", "\0", "x\ny", "💥\u202e", "é" * 3000, "nan", True,
    False, -1, 0, 1, 1.5, -1e308, 1e308, float("nan"), float("inf"), 10**30, 2**63, -(2**63), [], [[]], [None], {},
    {"a": 1}, {"": {}}, ["abc"] * 50, [1, "a", None, {}], [0.9, 0.9, 0.9], "__import__('os')", "=1+1", "1e3", "1_000",
    "2020-01-01",
]  # fmt: skip

TEXTS: dict[str, str] = {
    "python object": "{key}: !!python/object/apply:os.system ['touch escaped']\n",
    "python name": "{key}: !!python/name:os.system\n",
    "unknown tag": "{key}: !strange 1\n",
    "impossible date": "{key}: 2020-99-99\n",
    "impossible time": "{key}: 2020-01-01 99:99:99\n",
    "many digits": "{key}: " + "9" * 5000 + "\n",
    "many octals": "{key}: 0o777777777777777777777777777777\n",
    "deep": "{key}: " + "[" * 3000 + "]" * 3000 + "\n",
    "deep mapping": "{key}: " + "{{a: " * 3000 + "1" + "}}" * 3000 + "\n",
    "bomb": BOMB,
    "bomb as a value": "{key}: [" + _NESTED + "]\n",
    "itself": "{key}: &me [*me]\n",
    "merge": "{key}: 1\n<<: [1, 2]\n",
    "merge itself": "&a {{{key}: 1, <<: *a}}\n",
    "twice": "{key}: 1\n{key}: 2\n",
    "list as key": "? [1, 2]\n: 3\n{key}: 1\n",
    "mapping as key": "? {{a: 1}}\n: 3\n{key}: 1\n",
    "number as key": "1: 2\n2.5: 3\ntrue: 4\nnull: 5\n{key}: 1\n",
    "tabs": "\t{key}: 1\n",
    "several documents": "{key}: 1\n---\n{key}: 2\n",
    "list": "- {key}\n- 2\n",
    "word": "{key}\n",
    "number": "42\n",
    "binary": "{key}: !!binary aGVsbG8=\n",
    "set": "{key}: !!set {{a, b}}\n",
    "ordered": "{key}: !!omap [a: 1]\n",
    "open quote": '{key}: "abc\n',
    "open list": "{key}: [1, 2\n",
    "percent": "%YAML 9.9\n---\n{key}: 1\n",
    "equals": "{key}: =\n",
    "control character": "{key}: \x07\n",
    "long key": "k" * 3000 + ": 1\n",
    "many keys": "".join(f"k{i}: 1\n" for i in range(5000)),
}


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside nested mappings and lists; of a list of plain values only to the first."""
    yield path
    if isinstance(content, dict):
        for key, value in content.items():
            yield from places(value, (*path, key))
    elif isinstance(content, list):
        for i, value in enumerate(content):
            if i == 0 or isinstance(value, dict | list):
                yield from places(value, (*path, i))


def with_value(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a place."""
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(content, dict):
        return {
            key: with_value(old, rest, value) if key == first else old
            for key, old in content.items()
        }
    return [with_value(old, rest, value) if i == first else old for i, old in enumerate(content)]


def without(content: Any, path: tuple[Any, ...], new_key: str | None = None) -> Any:
    """A copy without the entry at a place, or with another name for it."""
    first, rest = path[0], path[1:]
    if not rest and isinstance(content, dict):
        kept = {key: value for key, value in content.items() if key != first}
        return kept if new_key is None else {**kept, new_key: content[first]}
    if not rest:
        return [value for i, value in enumerate(content) if i != first]
    if isinstance(content, dict):
        return {
            key: without(old, rest, new_key) if key == first else old
            for key, old in content.items()
        }
    return [without(old, rest, new_key) if i == first else old for i, old in enumerate(content)]


def changes(content: Any, each: int) -> Iterator[tuple[str, Callable[[Generator], Any]]]:
    """Names of changes to nested settings, and functions that make them: `each` values for every place."""
    for path in places(content):
        word = ".".join(map(str, path)) or "all"
        for k in range(each):
            yield f"{word} = value {k}", _valued(content, path)
        if path:
            yield f"{word} missing", lambda rng, path=path: without(content, path)
            yield (
                f"{word} misspelt",
                lambda rng, path=path: without(content, path, str(path[-1]) + "s"),
            )


def _valued(content: Any, path: tuple[Any, ...]) -> Callable[[Generator], Any]:
    return lambda rng: with_value(content, path, VALUES[int(rng.integers(len(VALUES)))])


def as_yaml(content: Any) -> bytes:
    """YAML text."""
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode("utf-8", "replace")


def as_json(content: Any) -> bytes:
    """JSON text, in Python's dialect (NaN and Infinity)."""
    return json.dumps(content).encode()
