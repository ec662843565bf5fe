"""Attacks on a model: one entrance (`methods`), gradient attacks and attacks on few inputs."""
