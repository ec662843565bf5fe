"""A synthetic minute market, readers of minute bars, sessions, and the volatility task."""
