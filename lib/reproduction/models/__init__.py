"""The networks of the papers other than implicit ones, each in a file of its own; all take a seed.

They import torch and each other, and nothing else of `reproduction`.
"""
