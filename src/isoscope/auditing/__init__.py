"""Everything an audit measures, in at most two passes over a store, with how sure each number is."""
