"""Picks of P arrivals as a table, from CSV and from what obspy reads."""
