"""Chapter 5: rolling argmax."""
