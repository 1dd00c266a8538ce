"""The command line, a file a command: each has an `app`, which `darklode.flows.cli` loads when it is called."""
