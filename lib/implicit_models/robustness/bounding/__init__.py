"""Bounds of a model's outputs over a set of inputs: boxes, intervals, duals, linear programmes, branching.

`bounds` of `robustness.bound_methods` chooses among them; they import the problem and its sets, and no entrance.
"""
