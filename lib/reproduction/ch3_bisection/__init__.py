"""Chapter 3: bisection on the LASSO path, as printed and corrected, and its lemmas."""
