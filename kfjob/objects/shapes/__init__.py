"""The types of the fields that kfjob reads of the API's objects, a module per API group.

So no other module meets a text where it expects a list. A field that an older or newer server leaves out counts as absent,
except for the names by which kfjob tells objects apart.
"""
