"""Chapter 5: volatility of AMC and of a synthetic market."""
