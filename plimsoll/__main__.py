"""`python -m plimsoll` is the command `plimsoll`."""

import sys

from plimsoll_cli.main import main

if __name__ == "__main__":
    sys.exit(main())
