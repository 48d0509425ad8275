"""A worker of NVIDIA Dynamo: tokens in, tokens out, the same engines and constraints as the server.

Only :mod:`llgtrt.dynamo.serve` imports Dynamo, which is an extra.
"""
