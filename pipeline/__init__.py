"""The stages and the parts they use: plain Python that knows nothing of Prefect."""
