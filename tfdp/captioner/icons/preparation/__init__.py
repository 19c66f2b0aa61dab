"""Making the data sets of icons and the vocabulary from public npm packages."""
