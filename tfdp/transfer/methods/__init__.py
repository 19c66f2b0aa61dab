"""Methods that train a private linear head, one file a method; `auto` lists them by name."""
