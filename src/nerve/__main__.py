"""`python -m nerve` is `nerve`; torchrun needs the module form."""

from nerve.cli import main

if __name__ == "__main__":
    main()
