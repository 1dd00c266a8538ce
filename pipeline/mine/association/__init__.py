"""Which queries lend one another their evidence (ScalingNote, 4.1.1, Algorithm 1)."""
