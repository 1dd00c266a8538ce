"""Which queries share evidence (ScalingNote, 4.1.1, Algorithm 1)."""
