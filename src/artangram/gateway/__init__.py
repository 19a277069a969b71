"""The only door to the model: sessions, engines, and which engine serves whom."""
