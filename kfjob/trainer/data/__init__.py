"""The data that a run trains and evaluates on.

sources.py       the training and validation data that a spec names
records.py       the protocol of a source of records, which lanes read
line_files.py    .jsonl and .txt as a source
parquet.py       Parquet files as a source
hub_dataset.py   a data set of the Hugging Face hub as a source
documents.py     the encoder that turns a record into tokens and a loss mask; chat.py has the one for conversations
content.py       a fingerprint of the content of data files
tokenizer.py     a tokenizer from a folder or from the hub
packing.py       documents packed into samples of one length
lanes.py         shuffled, resumable sequences of samples, read from a source
token_files.py   a tokenised folder: samples by number
synthetic.py     random samples by number
stream.py        the samples of one rank, and the position that a checkpoint stores
batches.py       the tensors of a step's micro-batches
prefetch.py      the thread that reads a step's samples ahead
permutation.py   a stateless shuffle that is the same in every version of numpy and torch
tiny_text.py     a program that builds a small data set from the installed Python
"""
