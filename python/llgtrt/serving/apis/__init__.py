"""Further APIs over the same use cases: each is one folder here, mounted by ``llgtrt.api``."""

from llgtrt.serving.apis.api import Api, GenerationRoute, ObjectRoute, Places, explained

__all__ = ["Api", "GenerationRoute", "ObjectRoute", "Places", "explained"]
