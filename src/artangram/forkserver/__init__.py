"""One fork server for model services and functions: import once, fork on request.

- `client.ForkServer` is the owner's side, in asyncio; `zygote` is the process that imports and
  forks; `records` is what they say to each other; `pdeathsig` ties a process to its parent.
- Every spawned process has one connection to its owner and exactly one reported end, which comes
  when the process is gone.
- A process ends with its zygote, and the zygote with its owner, however that ends.

Sandboxes do not use it: their zygote sets up namespaces and imports nothing from outside
`sandbox.inside`.
"""
