"""Chapter 3: SIM on Fashion-MNIST, attacks on its models, matched networks."""
