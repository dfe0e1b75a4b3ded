"""Regularisers and trackers on the trainers people use."""
