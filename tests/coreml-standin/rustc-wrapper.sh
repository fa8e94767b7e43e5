#!/bin/sh
# Cargo starts this in place of the compiler: `rustc-wrapper.sh rustc ARGUMENTS`.
#
# Bindings of frameworks say `#[link(name = "…", kind = "framework")]` in one generated line, which the compiler
# refuses where there are no frameworks (E0455). This compiles a copy of such a crate without that line and hands
# every other crate on as it is. Some shells drop variables that have a hyphen in their name, as those of cargo have for
# programs with one; the program of this package has none.
set -eu
rustc=$1
shift

source= out= previous=
for argument in "$@"; do
    case $argument in */objc2-*/src/lib.rs) source=$argument ;; esac
    [ "$previous" = --out-dir ] && out=$argument
    previous=$argument
done

generated=${source%/lib.rs}/generated/mod.rs
if [ -z "$source" ] || [ -z "$out" ] || ! grep -q 'kind = "framework"' "$generated" 2>/dev/null; then
    exec "$rustc" "$@"
fi

crate=${source%/src/lib.rs}
copy=$out/../without-frameworks/${crate##*/}
rm -rf "$copy"
mkdir -p "$copy"
cp -R "$crate/." "$copy/"
sed -i '/^#\[link(.*kind = "framework".*)\]$/d' "$copy/src/generated/mod.rs"
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    [ "$argument" = "$source" ] && argument=$copy/src/lib.rs
    set -- "$@" "$argument"
    count=$((count - 1))
done
exec "$rustc" "$@"
