"""Chapter 5: architectures, data sets and statements about all models."""
