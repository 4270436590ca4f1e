"""Problems of the environment in which libraries are loaded: variables and memory."""

from __future__ import annotations

import os

_LATEST_DATE = 253_402_300_799  # the last second of the year 9999
# messages of loaders, threads and allocators when there is not enough memory
_LACK_OF_MEMORY = (
    "failed to map segment",
    "cannot allocate memory",
    "can't allocate",
    "allocate memory",
    "can't start new thread",
)


def wrong_environment() -> str:
    """Say what is wrong with the variables that libraries read while they are loaded.

    Called before any library is loaded: some fail with a traceback where a variable is wrong.

    Returns
    -------
    str
        One sentence; empty if nothing is wrong.
    """
    date = os.environ.get("SOURCE_DATE_EPOCH")
    if date is None:
        return ""
    is_date = date.isascii() and date.isdigit() and int(date[:20]) <= _LATEST_DATE
    if is_date:
        return ""
    return (
        f"the variable SOURCE_DATE_EPOCH is {date[:40]!r}, expected seconds since 1970 as a whole "
        "number. Unset it, or set it to a number."
    )


def lacks_memory(error: BaseException) -> bool:
    """Whether an error means that there is not enough memory.

    Parameters
    ----------
    error : exception
        Of Python, torch or the loader of libraries, which have no error class in common.

    Returns
    -------
    bool
        True where there is not enough memory.
    """
    if isinstance(error, MemoryError):
        return True
    text = str(error).lower()
    return any(words in text for words in _LACK_OF_MEMORY)
