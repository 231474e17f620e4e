"""Messages between processes: one module of plain types per conversation, and the codecs.

Only the codecs import generated protobuf code; all other modules see the types of this package.
"""
