"""Public helpers for tests of what is built on Artangram."""
