"""Code that runs in the zygote and, after `pivot_root`, as PID 1 of a sandbox.

- Imports only the standard library's lightest modules: every page counts once per sandbox.
- Nothing is imported after `pivot_root`: from then on files belong to the attacker.
- Started without the parents' `__init__` (see `namespace.launch`), so it must not import them.
"""
