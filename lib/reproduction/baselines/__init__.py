"""Explicit models that the papers compare with, and the controls that explain the comparison."""
