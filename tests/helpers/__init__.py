"""What tests share: builders of small runs, scripted servers, the command line."""
