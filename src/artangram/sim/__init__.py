"""The second driver of the core, the workloads it runs, and the bounds it is measured against."""
