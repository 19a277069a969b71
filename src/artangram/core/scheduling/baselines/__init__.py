"""Policies to compare with: published algorithms and what people deploy today."""
