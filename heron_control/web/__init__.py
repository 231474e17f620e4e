"""What every process that speaks HTTP shares: the door (``guard``), how it is served (``serving``, ``strict_http``),
what goes with a status (``statuses``), the page of its paths (``docs_page``), the metrics of itself
(``self_metrics``)."""
