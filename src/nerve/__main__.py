"""The programs `nerve` (also `python -m nerve`, which torchrun needs) and `nerve-bids`.

Environment variables that numpy and torch read when they are imported are set before that.
"""

import sys
from importlib import import_module

from nerve._utils.cores import set_thread_variables
from nerve._utils.startup import lacks_memory, wrong_environment


def main() -> None:
    """Run `nerve`."""
    _run("nerve", "nerve.cli")


def bids() -> None:
    """Run `nerve-bids`."""
    _run("nerve-bids", "nerve.cli.bids")


def _run(program: str, module: str) -> None:
    fault = wrong_environment()
    if fault:
        sys.exit(f"{program}: {fault}")
    set_thread_variables()
    try:
        commands = import_module(module)
    except (ImportError, MemoryError, RuntimeError, OSError) as error:
        if not lacks_memory(error):
            raise
        sys.exit(f"{program}: there is not enough memory to load the libraries that it needs.")
    commands.main()


if __name__ == "__main__":
    main()
