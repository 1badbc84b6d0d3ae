"""Running a recorded session once more."""
