"""What a message goes through before it is stored: rules, destination, delays, batches, halves."""
