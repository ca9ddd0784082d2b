"""The broker's files: the containers' directories, the pods' records, the journal, and contexts' costs."""
