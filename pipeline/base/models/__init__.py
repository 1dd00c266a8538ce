"""Models of sentence-transformers on this machine: `local` finds them, `loading` loads them, `devices` says on what.

Code that a model brings along is never run.
"""

INSTALL = 'pip install "darklode[neural]"'
