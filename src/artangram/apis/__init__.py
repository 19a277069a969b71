"""Outside HTTP APIs, called within what they allow.

`ApiSpec` describes one; `ApiSpec.quota()` is its pool for the scheduler. `client.ApiClient` makes
one call for one lease: what it may not repeat safely, and what would be another call against the
window, goes back to the scheduler as a failure of infrastructure.
"""

from artangram.apis.spec import ApiSpec, checked

__all__ = ["ApiSpec", "checked"]
