"""What decides what runs where: packaging, packing, schedulers, submission, inspection, and the web foundation."""
