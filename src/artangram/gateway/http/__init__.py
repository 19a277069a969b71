"""The gateway for any OpenAI client, and for callers that send tokens."""

from artangram.gateway.http.server import ServerLimits, application, serving

__all__ = ["ServerLimits", "application", "serving"]
