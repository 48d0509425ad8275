"""The HTTP interface: OpenAI's routes, probes, metrics, the key, errors."""
