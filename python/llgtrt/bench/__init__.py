"""A load generator for servers with OpenAI's or Triton's generate routes: ``llgtrt bench``.

It knows nothing of this server but its routes. What it needs beside the package is in ``llgtrt[bench]``.
"""
