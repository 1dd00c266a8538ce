"""Jobs, one file each: what a job reads, its stages in data order, and what it writes."""
