"""What every process that speaks HTTP shares: the door (``guard``), how it is served (``serving``), the metrics of
itself (``self_metrics``)."""
