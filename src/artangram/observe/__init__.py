"""What happened, kept: traces today, the journal and metrics beside them."""
