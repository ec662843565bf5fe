"""Chapter 5: rolling average, and the data and networks of both rolling tasks."""
