"""What everything else uses: errors, data, settings, threads, files."""
