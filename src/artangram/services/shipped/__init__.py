"""Services that come with the cluster: two judges, a reward model and a teacher.

Each module has a function that describes its service, which needs no torch, and a loader, which a
replica calls.
"""
