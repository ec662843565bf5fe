"""The perspective penalty of the SIM paper on a text classifier: curves, supports, samples."""
