"""Side-by-side measurements against peers; see README.md."""
