"""Writes the signature of every core MIL operation of coremltools, per opset, as JSON to stdout.

    {"ios15": {"add": [{"name", "many", "const", "optional", "group", "dtypes", "default"}, ...]}, ...}

`dtypes` is null where coremltools leaves them open. `default` is null where there is none or it is not a scalar.
"""
import json
import logging
import sys
import types

logging.disable(logging.CRITICAL)

import numpy as np  # noqa: E402
from coremltools.converters.mil._deployment_compatibility import AvailableTarget  # noqa: E402
from coremltools.converters.mil.mil import types as mil_types  # noqa: E402
from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry  # noqa: E402

OPSETS = ["iOS15", "iOS16", "iOS17", "iOS18"]


def signature(cls):
    defaults = default_values(cls)
    return [
        parameter(cls, name, kind, defaults)
        for name, kind in cls.input_spec.input_types.items()
        if type(kind).__name__ != "PyFunctionInputType" and not name.startswith("_")  # nested blocks
    ]


def parameter(cls, name, kind, defaults):
    group = getattr(kind, "type_domain_id", None)
    domain = cls.type_domains[group] if group else getattr(kind, "type_domain", None)
    return {
        "name": name,
        "many": type(kind).__name__ == "TupleInputType",
        "const": kind.const,
        "optional": kind.optional,
        "group": group,
        "dtypes": sorted(mil_types.builtin_to_string(t) for t in as_tuple(domain)) if domain else None,
        "default": scalar_default(defaults.get(name)),
    }


def as_tuple(domain):
    return domain if isinstance(domain, tuple) else (domain,)


def default_values(cls):
    """The defaults, asked of an instance whose arguments are all the same small fp32 tensor."""
    argument = types.SimpleNamespace(dtype=mil_types.fp32, rank=4, shape=(1, 1, 1, 1), val=1)
    probe = type("Probe", (cls,), {"__getattr__": lambda self, name: argument})
    return dict(cls.default_inputs(probe.__new__(probe)).items())


def scalar_default(value):
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, (bool, int, float, str)) else None


def main():
    dump = {}
    for opset in OPSETS:
        target = getattr(AvailableTarget, opset)
        operations = {name: versions[target] for name, versions in SSAOpRegistry.core_ops.items() if target in versions}
        dump[opset.lower()] = {name: signature(cls) for name, cls in sorted(operations.items())}
    json.dump(dump, sys.stdout)


if __name__ == "__main__":
    main()
