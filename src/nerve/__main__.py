"""The programs `nerve` (also `python -m nerve`, which torchrun needs) and `nerve-bids`.

Nothing is imported before the variables that the libraries read when they are loaded are set.
"""

from nerve._utils.cores import set_thread_variables


def main() -> None:
    """Run `nerve`."""
    set_thread_variables()
    from nerve.cli import main

    main()


def bids() -> None:
    """Run `nerve-bids`."""
    set_thread_variables()
    from nerve.cli.bids import main

    main()


if __name__ == "__main__":
    main()
