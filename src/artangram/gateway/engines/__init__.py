"""What samples tokens, behind one protocol."""
