"""Models behind OpenAI-compatible servers, asked over HTTP."""

from .adapter import VlmServer as VlmServer
