"""What a package can add to llgtrt, found by their entry points in pyproject.toml."""
