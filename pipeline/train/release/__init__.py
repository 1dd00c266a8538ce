"""What a training run releases: evaluation, verdict, adapter folder, identity and card; and warm starts from it."""
