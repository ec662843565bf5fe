"""Chapter 3: SIM on a trained ResNet-20."""
