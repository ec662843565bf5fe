"""Chapter 4: the thesis' bounds beside interval, dual and triangle bounds."""
