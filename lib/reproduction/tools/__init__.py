"""Long runs that are no part of a build: the search of hyper-parameters, training of learned locators."""
