"""What every process that speaks HTTP shares: the door (``guard``), and how it is served (``serving``)."""
