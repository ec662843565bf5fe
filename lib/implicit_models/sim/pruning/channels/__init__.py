"""A network with fewer channels: what belongs to a channel, which ones go, and the smaller network that is left.

`spaces` says which rows and columns of which layers a channel is, shortcuts included; `allocation` shares the
multiplications out; `recipe` chooses the channels, by the elimination of groups on the Gram matrices of all layers that
read them, and fits what is left on what the smaller network computes; `cut` writes that network; `report` says what is
left of it. It imports the other files of pruning, of which none knows it.
"""
