"""Geiger's method for many events: starts, iteration, outliers, uncertainty."""
