"""Chunks of independent work in order, on threads, in processes or on Ray, resumed after a kill; it knows no rows."""
