"""What every process that speaks HTTP shares: the door (``guard``), how it is served (``serving``), what it counts of itself (``self_metrics``)."""
