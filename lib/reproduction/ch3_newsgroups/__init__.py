"""Sparse models of a text classifier (chapter 3 of the thesis): radii, scales, shares of the data, controls."""
