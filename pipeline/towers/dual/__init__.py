"""Both towers together, from triplets: three views of a document, contrastive and margin losses, nested dimensions."""

FOLDER = "towers"
"""Both towers, in the folder that they were trained to."""
