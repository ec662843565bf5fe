"""Chapter 2: networks as implicit models, checked and drawn."""
