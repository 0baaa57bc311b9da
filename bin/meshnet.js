#!/usr/bin/env -S node --max-semi-space-size=2 --heap-growing-percent=30
// The flags are NODE_FLAGS of src/cli/node-process.ts, which says what they are for.
// Plain JavaScript, because a Node.js that cannot read TypeScript has to be told so in words.
if (!process.features.typescript) {
  console.error(
    `E_RUNTIME_UNSUPPORTED: Meshnet cannot run on Node.js ${process.version}. ` +
      'In a checkout use `npm run meshnet -- COMMAND`, which brings its own Node.js.',
  );
  process.exit(1);
}

await import('../src/main.ts');
