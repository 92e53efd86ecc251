"""The life of an epoch on the driver: decide it before it runs, publish it once it is whole."""
