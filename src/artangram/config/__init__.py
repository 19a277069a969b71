"""Files that describe what to run on and what to run; each room owns the records they fill."""
