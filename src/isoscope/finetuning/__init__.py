"""Fine-tuning a model for a task, with a regulariser of its space or none."""
