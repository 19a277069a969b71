"""The dashboard: pages of a running service for people, offline, read-only.

- `pages` gives the routes that a service adds to its own; `view` is what a page shows, of bounded
  size whatever callers name; `gate` decides which callers may look.
- Pages change nothing: a browser that was let in can look, and run nothing.
"""

from artangram.dashboard.routes import pages as pages
