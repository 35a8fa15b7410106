"""Where samples come from.

permutation.py   a shuffle that is a function: no state, the same on every version of everything
text.py          .jsonl and .txt read in lanes, tokenised as they are read
blocks.py        a tokenised folder: fixed samples that can be picked by number
stream.py        the samples of one rank, and the position that a checkpoint keeps
tokenise.py      makes a tokenised folder
tiny_text.py     makes a small data set of real text from what is installed
"""
