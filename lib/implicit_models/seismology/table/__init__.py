"""Travel times of the first P arrival: ray branches in a layered Earth, the table, its interpolation."""
