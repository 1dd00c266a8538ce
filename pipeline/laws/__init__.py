"""How loss falls with labels, and what more of them would bring; one way in is `fit.laws`, over points."""
