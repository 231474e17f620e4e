"""The instance's shell: gateway thread, executor loop, start and end of the process."""
