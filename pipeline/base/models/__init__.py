"""Local models: `local` finds sentence-transformers models, `loading` loads them, `devices` chooses the device;
`onnx_models` finds and loads those of fastembed.

Code shipped with a model is never executed.
"""

INSTALL = 'pip install "darklode[neural]"'
INSTALL_LIGHT = 'pip install "darklode[light]"'
