"""What a broker does by itself: saves tables and offsets, registers, checks its folder."""
