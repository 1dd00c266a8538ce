"""The rim: Prefect flows that read as a list of stages in data order, presets, the command line and the pages."""
