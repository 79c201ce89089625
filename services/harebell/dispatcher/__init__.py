"""Consumes due bundles, holds them to the moment, publishes work bundles; owns nothing stored."""
