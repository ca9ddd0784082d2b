"""The monitor's pure core, by values and properties."""
