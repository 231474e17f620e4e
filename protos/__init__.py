"""Protocol buffers: one ``.proto`` per conversation; generated code beside it, made by ``make protos``."""
