"""Chapter 2: where fixed points exist and are unique, and rescaling."""
