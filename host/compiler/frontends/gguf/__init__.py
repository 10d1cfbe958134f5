"""Import of language models in GGUF files, llama.cpp's format."""
