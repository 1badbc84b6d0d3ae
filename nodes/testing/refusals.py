"""The error of a server that refuses a request."""


class RefusedRequestError(Exception):
    """A request that a server answers with an HTTP error instead of a reply.

    Attributes:
        message: The text of the error, as the server sends it.
        param: The field that is wrong. None: the server names none.
        code: The server's error code. None: it has none.
        status: The HTTP status.
    """

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status
