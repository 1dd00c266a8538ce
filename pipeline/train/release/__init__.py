"""What a training run hands over: the adapter folder, its identity, its card and the verdict."""
