"""Properties of networks: the search for an answer (`search`), what it leaves on disk (`checkpoint`), and the proof of
it (`proof`)."""
