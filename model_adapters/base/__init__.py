"""What all adapters share."""
