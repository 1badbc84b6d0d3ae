"""Write the store and the dump of a release: `python tests/stores tests/stores/0.1.0`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts this folder first on the path, and its modules would hide others.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from stores.contents import write_store

    write_store(Path(sys.argv[1]))
