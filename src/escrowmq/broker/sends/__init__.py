"""What happens to a message before it is stored: rules, destination, delays, batches, halves."""
