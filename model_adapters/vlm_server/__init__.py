"""Models on OpenAI-compatible servers, over HTTP."""

from .adapter import VlmServer as VlmServer
