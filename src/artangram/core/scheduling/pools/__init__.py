"""The books: what exists, what is taken, by whom. Arithmetic only; managers perform."""
