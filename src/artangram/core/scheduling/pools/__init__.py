"""The books: what exists, what is taken, by which action. Arithmetic only; managers perform."""
