"""Fine-tuning a model for a task, with a regularizer of its space or none."""
