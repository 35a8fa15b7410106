import os

from hypothesis import settings

# the images that tests name are in no registry: a submit that asked for them would wait for the network and say so
os.environ["KFJOB_IMAGE_CHECK"] = "0"

# machines are shared: how long one example takes says nothing; what hangs is ended by pytest-timeout
settings.register_profile("kfjob", deadline=None)
settings.load_profile("kfjob")
