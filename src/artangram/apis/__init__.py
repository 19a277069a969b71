"""Outside HTTP APIs: calls that keep to their quotas and say so when they cannot."""
