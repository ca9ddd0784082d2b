"""Writes the dashboards to `deploy/chart/dashboards`, and names each that differs."""

import sys

from dashboards.output import FOLDER, outputs


def main() -> int:
    """Write every file that differs."""
    FOLDER.mkdir(exist_ok=True)
    for path, text in outputs().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"wrote {path.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
