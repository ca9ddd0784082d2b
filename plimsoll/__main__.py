"""`python -m plimsoll` is the command `plimsoll`."""

from plimsoll.cli.main import app

if __name__ == "__main__":
    app()
