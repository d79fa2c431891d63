"""LLM-as-judge: prompts, strict reply formats, the client with its cache, and the guard on credentialed data."""
