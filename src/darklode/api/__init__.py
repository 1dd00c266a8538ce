"""Python API; `import darklode` has its names, which are loaded when they are first used."""
