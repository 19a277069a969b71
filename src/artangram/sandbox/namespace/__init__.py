"""The default provider on Linux: namespaces, no engine, no extra package.

Everything here runs in the caller's process, on its event loop; `artangram.sandbox.inside` is
the other end of the sockets.
"""
