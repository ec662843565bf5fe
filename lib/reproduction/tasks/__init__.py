"""One module a task: its data, architectures and hyper-parameters for each profile."""
