"""Joint training of both towers from triplets: three document views, contrastive and margin losses, Matryoshka
dimensions.
"""

TOWERS_FOLDER = "towers"
"""Name of the folder with both towers."""
