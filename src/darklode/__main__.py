"""`python -m darklode` is the command `darklode`."""

from darklode.flows.start import main

if __name__ == "__main__":
    main()
