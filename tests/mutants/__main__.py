"""Count which small faults the tests catch: `python tests/mutants run --to result.json`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts this folder first on the path, and its modules would hide others.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from mutants.command import main

    sys.exit(main())
