"""Small language models and their vocabularies, as files and as torch modules."""
