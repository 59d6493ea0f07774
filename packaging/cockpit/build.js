// Bundle the page into a directory: node build.js DIRECTORY VERSION. The same sources make the same bytes.

import { readFile, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const [target, version] = process.argv.slice(2);
const source = new URL("src/", import.meta.url);

await build({
    absWorkingDir: new URL(".", import.meta.url).pathname,
    entryPoints: { podslice: "src/app.js" },
    outdir: target,
    bundle: true,
    minify: true,
    format: "iife",
    target: ["es2022", "firefox115"],
    // backgrounds of themes that Cockpit does not have
    loader: { ".svg": "empty" },
    // the fonts are Cockpit's
    external: ["../../static/*"],
    legalComments: "none",
});
const manifest = await readFile(new URL("manifest.json", source), "utf8");
await writeFile(`${target}/manifest.json`, manifest.replace("@VERSION@", version));
await writeFile(`${target}/index.html`, await readFile(new URL("index.html", source)));
