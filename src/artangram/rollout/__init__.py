"""From problems to groups of finished trajectories."""
