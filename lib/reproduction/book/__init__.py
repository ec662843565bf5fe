"""The machinery of a build: parameters, runs, keys, confirmation, recorded values, claims and pages.

It computes nothing that a paper states. It may import any module of the library and of `reproduction` lazily; the
modules that compute import none of it but `keys` (for their caches).
"""
