"""Stream manager: one process per container that routes frames, tracks tuple trees and applies backpressure."""
