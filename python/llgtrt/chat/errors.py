"""The error of this package that a client causes."""


class ChatError(ValueError):
    """Messages, or what belongs to them, cannot be made into a prompt.

    Attributes:
        message: one sentence for the client.
        param: the request field, such as ``messages[2].content[0]``.
    """

    def __init__(self, message: str, param: str = "messages") -> None:
        super().__init__(message)
        self.message = message
        self.param = param
