"""Shell of the stream manager: process, connections, files."""
