#!/usr/bin/env node
'use strict'
// A stream handler that does nothing: takes what there is, answers it with one write. With a
// FIFO in BENCH_COUNT it writes one byte there for each job. (CommonJS, for it is installed under a
// name without a suffix.)
const { openSync, writeSync } = require('node:fs')

const { BENCH_COUNT } = process.env
const counter = BENCH_COUNT ? openSync(BENCH_COUNT, 'w') : undefined
let held = ''
process.stdin.setEncoding('utf8').on('data', chunk => {
	const lines = (held + chunk).split('\n')
	held = lines.pop()
	if (lines.length === 0) return
	if (counter !== undefined) writeSync(counter, 'x'.repeat(lines.length))
	process.stdout.write(lines.map(line =>
		JSON.stringify({ id: JSON.parse(line).id, outcome: 'ok' }) + '\n').join(''))
})
