"""What can go wrong in an input processor, and whose fault it is."""


class InputError(Exception):
    """The client's fault: raised by an input processor, answered with status 400.

    Every other exception of a processor is a defect of the server: it is logged with its traceback, and the
    client gets status 500 without any of it.

    Attributes:
        message: one sentence for the client.
        param: the request field, such as ``messages[0].content[1].image_url.url``.
    """

    def __init__(self, message: str, param: str = "messages") -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class ProcessorFailedError(Exception):
    """An input processor raised something, or returned what cannot be used. The cause has the details."""


class HookFailedError(Exception):
    """A method of a hook raised something, or returned what cannot be used: status 500."""


class HookTimeoutError(Exception):
    """A method of a hook took too long: status 503."""
