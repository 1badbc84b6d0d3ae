"""Running the cells of a batch on Ray: on several cores, or on several machines."""

import os

# Ray reads these when it is imported. The first makes Ray start its workers with this Python, not
# with `uv run` in a copy of the working folder. The second keeps Ray's output in its log files.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^")
