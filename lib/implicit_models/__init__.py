"""Implicit deep learning."""
