"""The pure decision core: no I/O, no clock, no randomness; time is an argument.

Everything here is deterministic: the same events at the same times give the same decisions, in the
simulator, in the live orchestrator and in a replay of a journal.
"""
