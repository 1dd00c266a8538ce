"""What a job of any size takes, by what its stages took at small sizes (`plan.py`)."""
