"""20 Newsgroups and synthetic topics as vectors of words."""
