"""One machine as several hosts: namespaces, a network of their own, Spark and a store on it."""
