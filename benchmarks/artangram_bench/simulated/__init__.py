"""A cluster that is not there: the very rollout code on virtual time, engines by the roofline."""
