"""Fashion-MNIST, MNIST, scikit-learn's digits and CIFAR-10."""
