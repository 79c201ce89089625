"""`make demo`: the main job before a person's eyes, and whether it was done.

Read in this order: `scenes` (what is scheduled), `story` (what happens), `verdict` (what counts).
"""
