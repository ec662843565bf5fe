"""Chapter 4: attacks on Fashion-MNIST and their table."""
