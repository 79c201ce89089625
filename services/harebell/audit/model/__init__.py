"""The rules of an audit: what the tables say goes in, what is wrong with it comes out. Pure."""
