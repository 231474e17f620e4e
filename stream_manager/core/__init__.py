"""Core of the stream manager: pure state machines without threads, clocks or sockets."""
