"""Local sentence-transformers models: `local` finds them, `loading` loads them, `devices` chooses the device.

Code shipped with a model is never executed.
"""

INSTALL = 'pip install "darklode[neural]"'
