"""HTTP building blocks that the tracker and the API server share."""
