"""The trained ResNet-20 on CIFAR-10 and what stands in for it where it is not at hand."""
