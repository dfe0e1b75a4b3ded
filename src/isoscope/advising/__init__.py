"""The advisor: tasks, candidate repairs, trials and statistical inference."""
