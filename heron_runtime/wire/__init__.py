"""What processes say to each other: one module of plain message types per conversation, and the codecs.

Only modules whose name ends in ``codec`` import generated protobuf code; everyone else sees the types of this package.
"""
