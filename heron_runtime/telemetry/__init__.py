"""What processes measure of themselves, and how that reaches the metrics manager: totals, sketches, reports."""
