"""`harebell forecast`: the load of each hour, as a heat map.

* forecast    the command
* heat        levels of colour and short numbers for counts (pure)
* terminal    the heat map as lines of a terminal
* page        the heat map as SVG or HTML, without other files
"""
