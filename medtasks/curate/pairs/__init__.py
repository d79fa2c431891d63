"""Studies of confusing pairs, as MediConfusion builds them."""
