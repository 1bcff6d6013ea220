"""Benchmarks: `python -m benchmarks.run`, `.report` and `.check`. README.md beside this file says how they measure."""
