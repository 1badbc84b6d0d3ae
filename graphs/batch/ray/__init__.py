"""Running the cells of a batch by Ray: on more cores than one, or on many machines."""

import os

# Ray reads these when it is imported. Its workers are started by the Python that runs this, not by
# `uv run` in a copy of the working folder; and what it has to say stands in its log files.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^")
