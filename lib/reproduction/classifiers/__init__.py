"""Two classification tasks with their trained networks: Fashion-MNIST and 20 Newsgroups.

They import `core`, `models`, the library and `data_gen`.
"""
