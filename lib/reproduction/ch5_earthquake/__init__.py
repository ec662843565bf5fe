"""Chapter 5: earthquake location, its task, controls, study, tables and figures."""
