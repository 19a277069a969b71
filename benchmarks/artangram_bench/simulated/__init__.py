"""Simulated clusters: the live rollout code on virtual time, engines by the roofline."""
