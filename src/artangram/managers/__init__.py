"""Make leases real: node agents that run things, and managers that tell them what to run."""
