"""No module of kfjob imports itself through others, also not by an import inside a function."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp

ALLOWED = {("kfjob.spec.job", "kfjob.api.specs.sdk")}
"""`JobSpec.from_pytorchjob` is a method for users; it imports the converter of `api` when it is called."""


def test_modules_have_no_import_cycle():
    graph = grimp.build_graph("kfjob", exclude_type_checking_imports=True)
    imports = {
        module: {target for target in graph.find_modules_directly_imported_by(module) if (module, target) not in ALLOWED}
        for module in graph.modules
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as err:
        raise AssertionError(" imports ".join(reversed(err.args[1]))) from None
    assert all(target in graph.find_modules_directly_imported_by(module) for module, target in ALLOWED)
