"""The watches, and what follows from each change that they show."""
