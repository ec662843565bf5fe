"""Rows of a given number of columns: backward elimination, exchanges, a lower bound, and refits on the support found.

All rows of a problem share one matrix H (positive definite), and each has its own right-hand side c:

    min 1/2 w'H w - c'w    over w with at most k entries that are not zero.
"""
