"""The gateway for any OpenAI client, and for callers who speak tokens."""

from artangram.gateway.http.server import ServerLimits, application, serving

__all__ = ["ServerLimits", "application", "serving"]
