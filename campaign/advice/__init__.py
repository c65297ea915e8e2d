"""Give advice on a cell: find what bounds the cell, write a command that tests it, and judge the predictions."""
