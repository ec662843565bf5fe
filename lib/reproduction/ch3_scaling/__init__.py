"""What it costs to fit rows (appendix of the SIM paper): backends, bytes, the price of implicit differentiation."""
