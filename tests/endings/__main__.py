"""Measure the rules that end conversations: `python tests/endings run --tau2 PATH --sgd PATH …`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts this folder first on the path, and its modules would hide others.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from endings.command import main

    main()
