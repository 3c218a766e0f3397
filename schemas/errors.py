"""The one error a user is meant to read."""


class UserError(Exception):
    """A mistake in input, configuration or environment. The message names the cause and the remedy.

    Command lines print it without a stack trace and exit with status 2.
    """
