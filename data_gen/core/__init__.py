"""The data set, its streams of random numbers, sizes, and the one resolver and cache of public files."""
