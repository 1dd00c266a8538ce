"""Web pages of `browse`, `review` and `serve`."""
