"""Making the datasets of icons and the vocabulary from public npm packages."""
