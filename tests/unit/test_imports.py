"""No module of kfjob imports itself through others, also not by an import inside a function or for types only."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp


def test_modules_have_no_import_cycle():
    graph = grimp.build_graph("kfjob", exclude_type_checking_imports=False)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as err:
        raise AssertionError(" imports ".join(reversed(err.args[1]))) from None
