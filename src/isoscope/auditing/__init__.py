"""The measurements of an audit, made in at most two passes over a store, with their uncertainty."""
