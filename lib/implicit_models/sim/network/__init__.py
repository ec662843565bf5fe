"""Torch networks as row problems: their layers, receptive fields, states, units, and the columns that a row may use.

It imports `sim.solvers`, `sim.parallel` and `sim.problem`, and nothing that asks (`fit`, `layerwise`, `row_models`).
"""
