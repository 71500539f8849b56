"""One module per command, each imported when the command is called."""
