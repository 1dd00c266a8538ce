"""Both towers together, from triplets: three views of a document, contrastive and margin losses, nested dimensions."""
