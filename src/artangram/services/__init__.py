"""Model services: loaded onto devices when called, evicted when others need the room."""
