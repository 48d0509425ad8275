"""A hook and a call format for llgtrt, found by their entry points in pyproject.toml."""
