"""Generated parts of the book, one file a kind: claims and foot of a notebook's page, the record, the gallery.

They read claims, errata and results, and compute nothing; `python -m reproduction.book.pages` writes them."""
