"""Arithmetic, rolling and spiky series, made from a seed."""
