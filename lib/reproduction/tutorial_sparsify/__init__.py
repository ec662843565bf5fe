"""The tutorial page: a network of the reader, sparsified."""
