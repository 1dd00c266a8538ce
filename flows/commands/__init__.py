"""The commands, one file each, with an `app` that `darklode.flows.cli` imports when the command is called."""
