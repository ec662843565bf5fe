"""Chapter 3: safe elimination of features, on images and on stations of earthquakes."""
