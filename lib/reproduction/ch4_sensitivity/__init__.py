"""Chapter 4: the sensitivity matrix on Fashion-MNIST."""
