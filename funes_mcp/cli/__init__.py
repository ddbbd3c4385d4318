"""One module a command: parse arguments, call the service, print."""
