//! Which properties operations have. A file has only their values, in the alphabetical order of their names.

/// The properties of one operation.
pub(super) struct Properties {
    /// The operation, without the dialect.
    pub(super) op: &'static str,
    /// Names in alphabetical order, and whether a value may be missing.
    pub(super) names: &'static [(&'static str, bool)],
}

const REQUIRED: bool = false;
const OPTIONAL: bool = true;

/// Every operation that has properties.
static PROPERTIES: &[Properties] = &[
    // What the first is was never seen: no file has it.
    Properties { op: super::ASSET, names: &[("attribute", OPTIONAL), ("version", OPTIONAL)] },
    Properties {
        op: super::GRAPH,
        names: &[
            ("argAttrs", REQUIRED),
            ("compositeDecl", OPTIONAL),
            ("externalize", REQUIRED),
            ("functionType", REQUIRED),
            ("isPrivate", REQUIRED),
            ("name", REQUIRED),
            ("noInline", REQUIRED),
            ("paramDecls", REQUIRED),
            ("resAttrs", REQUIRED),
        ],
    },
    Properties {
        op: "dataflow.invoke_v1",
        names: &[("arg_attrs", REQUIRED), ("callee", REQUIRED), ("res_attrs", REQUIRED)],
    },
    Properties { op: "primitive.constant_v1", names: &[("value", REQUIRED)] },
    Properties { op: "primitive.gelu_v1", names: &[("approximate", REQUIRED)] },
    Properties { op: "primitive.pad_v1", names: &[("padding_mode", REQUIRED)] },
    Properties { op: "primitive.scan_v1", names: &[("combiner", REQUIRED)] },
    Properties { op: "primitive.scatter_along_axis_v1", names: &[("scatter_mode", REQUIRED)] },
];

/// The properties of an operation: none unless the table has them.
pub(super) fn of(op: &str) -> &'static [(&'static str, bool)] {
    PROPERTIES.iter().find(|properties| properties.op == op).map_or(&[], |properties| properties.names)
}
