"""Measure where conversations end: `python tests/endings run --tau2 PATH --sgd PATH …`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Run as a folder, whose own place would hide the others.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from endings.command import main

    main()
