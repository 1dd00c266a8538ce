"""Training: losses, heads, adaptation methods, trials with callbacks, and selection on validation queries."""
