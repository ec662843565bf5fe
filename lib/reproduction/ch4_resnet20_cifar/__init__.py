"""Chapter 4: sensitivity, attacks and bounds on a trained ResNet-20."""
