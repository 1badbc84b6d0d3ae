"""Modules that all others use: errors, data, settings, threads, files."""
