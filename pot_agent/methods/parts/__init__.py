"""What methods share."""
