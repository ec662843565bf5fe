"""What benchmarks are made of: the peers that a user would write or take instead, and parts that run alone too."""
