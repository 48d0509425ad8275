"""``python -m llgtrt`` is the ``llgtrt`` command."""

from llgtrt.cli import main

if __name__ == "__main__":
    main()
