"""Protocol buffers code that `make protos` generates from the `.proto` files in `protos/`."""
