"""What runs in other programs' processes."""
