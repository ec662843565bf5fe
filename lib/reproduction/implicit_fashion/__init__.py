"""Two trained networks on Fashion-MNIST and their controls."""
