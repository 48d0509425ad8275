"""The one error of this package."""


class ConfigError(Exception):
    """The command line, a configuration file or the model's files cannot be used.

    The message is one line for the operator: it names the file and the option.
    """
