"""Chapter 5: what the strictly upper triangle of A adds."""
