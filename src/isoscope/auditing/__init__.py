"""Everything an audit measures, in at most three passes over a store, with how sure each number is."""
