from hypothesis import settings

# machines are shared: how long one example takes says nothing; what hangs is ended by pytest-timeout
settings.register_profile("kfjob", deadline=None)
settings.load_profile("kfjob")
