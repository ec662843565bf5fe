"""Chapter 5: spiky series."""
