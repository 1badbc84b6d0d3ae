"""The functions and handles that people use from Python: `converse`, `ask`, `Session`, `Result`."""
