"""The rim: Prefect flows that read as a list of stages in data order, presets and the command line."""
