"""The sandbox as a whole: its processes, their supervisor, and what `everstep sandbox` does with them."""
