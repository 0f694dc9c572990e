// outbox itself: its programs, started by outbox-up, with handlers that do nothing. In B are the
// programs. Handlers tell through a FIFO what they do: a byte for each job, or its start.
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { chmodSync, copyFileSync, createReadStream, mkdirSync, mkdtempSync, openSync, closeSync, rmSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { connection, here, payloadText, pg, query, skip } from '../common.mjs'

const build = process.env.B
const root = path.join(here, '../../..')

// exec_c: a process for each job; stream_c and stream_node: resident handlers
export const configs = {
	exec_c: { mostJobs: 10000, handler: path.join(build, 'tests/bench/noop') },
	stream_c: { stream: true, handler: path.join(build, 'tests/bench/stream') },
	stream_node: { stream: true, handler: path.join(root, 'tests/bench/stream.js') }
}
export const enqueueSql = `select * from outbox.enqueue('noop', '${payloadText}');`
export const remainingSql = 'select exists (select from outbox.ready) or exists (select from outbox.claim) as more'

export function check (config) {
	if (!configs[config].stream) return
	const found = spawnSync('sh', ['-c', '. "$0"; has_streams', path.join(root, 'tests/bench/lib.sh')])
	if (found.status !== 0) skip('this outbox-run has no stream handlers')
}

export async function install (database) {
	execFileSync(path.join(build, 'outbox'), ['migrate'],
		{ stdio: 'ignore', env: { ...process.env, PGDATABASE: database } })
	// as a runner does that has the handler
	await query(database, `select outbox.worker_hello('bench', 'bench', 1, '0', 'default', 60000,
		'[{"kind":"noop"}]', '{}', '{}')`)
}

export async function openProducer (database, connections) {
	const pool = new pg.Pool({ ...connection(database), max: connections })
	const one = { name: 'one', text: "select id from outbox.enqueue('noop', $1::text)" }
	const bulk = "select count(*) from outbox.enqueue_many(array['noop'], $1::text[])"
	return {
		one: async payload => (await pool.query({ ...one, values: [JSON.stringify(payload)] })).rows[0].id,
		bulk: payloads => pool.query(bulk, [payloads.map(payload => JSON.stringify(payload))]),
		close: () => pool.end()
	}
}

function makeHandlers (folder, { stream, handler }) {
	mkdirSync(folder, { mode: 0o755 })
	const file = path.join(folder, stream ? 'noop.handler' : 'noop')
	copyFileSync(handler, file)
	chmodSync(file, 0o755)
	if (stream) {
		writeFileSync(path.join(folder, 'noop.ini'),
			'[handler]\nkind = noop\ncommand = ./noop.handler\nmode = stream\n')
	}
}

export async function startWorker (database, config, report, mode) {
	const folder = mkdtempSync(path.join(os.tmpdir(), 'outbox-bench-'))
	const fifo = path.join(folder, 'fifo')
	const variable = mode === 'latency' ? 'BENCH_STAMPS' : 'BENCH_COUNT'
	makeHandlers(path.join(folder, 'handlers.d'), configs[config])
	execFileSync('mkfifo', [fifo])
	const held = openSync(fifo, 'r+') // so that it does not end between two handlers
	const input = createReadStream(fifo)
	if (mode === 'latency') {
		createInterface({ input }).on('line', line => report.started(...line.split(' ')))
	} else {
		input.on('data', bytes => report.done(bytes.length))
	}
	const pipeline = spawn(path.join(root, 'scripts/outbox-up'),
		['--handlers', path.join(folder, 'handlers.d'), '-j', '4'],
		{ stdio: 'ignore', env: { ...process.env, PGDATABASE: database, [variable]: fifo, OUTBOX_PASS_ENV: variable } })
	return {
		stop: async () => {
			const ended = new Promise(resolve => pipeline.on('exit', resolve))
			pipeline.kill('SIGTERM')
			await ended
			input.destroy()
			closeSync(held)
			rmSync(folder, { recursive: true })
		}
	}
}
