"""Measurements beside peers: `python -m benchmarks.AREA [--quick] --json FILE`. Never timed inside tests."""
