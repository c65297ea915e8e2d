"""A campaign as TensorBoard shows it."""
