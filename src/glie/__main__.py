"""`python -m glie`: the command line, where the command `glie` is not on the path."""

from glie.cli import main

if __name__ == "__main__":
    main()
