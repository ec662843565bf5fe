"""Chapter 4: penalties and losses of robust training."""
