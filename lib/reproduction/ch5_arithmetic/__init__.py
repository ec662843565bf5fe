"""Chapter 5: addition and subtraction."""
