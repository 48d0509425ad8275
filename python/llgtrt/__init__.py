"""llgtrt: an LLM inference server whose constrained answers are always valid."""
