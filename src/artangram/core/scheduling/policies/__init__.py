"""How queues are ranked and sizes chosen: one idea per file."""
