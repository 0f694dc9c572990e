// What the measurements and the adapters share: connections, databases, clocks, statistics,
// worker processes. PG* in the environment names the server, BENCH_PACKAGES the npm packages.
import { execFileSync, spawn } from 'node:child_process'
import { createRequire } from 'node:module'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath, pathToFileURL } from 'node:url'

export const here = path.dirname(fileURLToPath(import.meta.url))
export const packages = process.env.BENCH_PACKAGES
const require = createRequire(path.join(packages, 'index.js'))
export const pg = require('pg')
export const importPackage = name => import(pathToFileURL(require.resolve(name)))

export const connection = database => ({
	host: process.env.PGHOST, port: Number(process.env.PGPORT), user: process.env.PGUSER, database
})

export function skip (reason) {
	throw Object.assign(new Error(reason), { skip: true })
}

// ---- jobs: about 110 bytes of JSON, the same for every peer

export const payload = id => ({
	id, kind: 'welcome_email', to: 'user.name@example.com', ref: '0b9f6a52-7c1e-4d7a-9a55-2f8f3f0c1d11'
})
export const payloads = (from, count) => Array.from({ length: count }, (_, i) => payload(from + i))
export const payloadText = JSON.stringify(payload(1000000))

// ---- databases

export async function withClient (database, work) {
	const client = new pg.Client(connection(database))
	await client.connect()
	try {
		return await work(client)
	} finally {
		await client.end()
	}
}

export const query = (database, sql) =>
	withClient(database, async client => (await client.query(sql)).rows)

export async function freshDatabase (adapter) {
	const database = 'bench_peer'
	await withClient('postgres', async client => {
		await client.query(`drop database if exists ${database} with (force)`)
		await client.query(`create database ${database}`)
		await client.query('checkpoint')
	})
	await adapter.install(database)
	return database
}

// Transactions a second of a script run by pgbench: a client in C, prepared statements.
export function pgbench (database, script, clients, seconds) {
	const output = execFileSync('pgbench',
		['-n', '-M', 'prepared', '-c', clients, '-j', Math.min(clients, 2), '-T', seconds, '-f', '-', database],
		{ input: script, stdio: ['pipe', 'pipe', 'pipe'] }).toString()
	return Number(output.match(/tps = ([\d.]+)/)[1])
}

// ---- time: CLOCK_MONOTONIC, the same in all processes

export const now = () => process.hrtime.bigint()
export const secondsSince = start => Number(now() - start) / 1e9
export const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

export async function waitUntil (condition, seconds, what) {
	const start = now()
	while (!await condition()) {
		if (secondsSince(start) > seconds) throw new Error(`${what} did not come true in ${seconds} s`)
		await sleep(2)
	}
}

// ---- figures

export const sorted = values => Float64Array.from(values).sort()
export const quantile = (values, part) => values[Math.max(0, Math.ceil(part * values.length) - 1)]

// ---- workers

// A worker process, which speaks lines: it writes "ready"; reads "go" and begins; writes
// "n COUNT" for the jobs done so far and, to measure latency, "start NAME NANOSECONDS" of each;
// reads "stop", stops and exits. "skip REASON" instead of "ready": it cannot run here.
export class Worker {
	done = 0
	starts = new Map()

	constructor (command, args, environment = {}) {
		this.process = spawn(command, args,
			{ stdio: ['pipe', 'pipe', 'inherit'], env: { ...process.env, ...environment } })
		this.exited = new Promise(resolve => this.process.on('exit', status => {
			this.gone = true
			resolve(status)
		}))
		this.ready = new Promise((resolve, reject) => {
			this.process.on('exit', status => reject(new Error(`the worker ended with ${status}`)))
			createInterface({ input: this.process.stdout }).on('line', line => this.#hear(line, resolve, reject))
		})
	}

	#hear (line, resolve, reject) {
		const [word, ...rest] = line.split(' ')
		if (word === 'n') {
			this.done = Number(rest[0])
			this.first ??= { at: now(), done: this.done }
		} else if (word === 'start') {
			this.starts.set(rest[0], BigInt(rest[1]))
		} else if (word === 'ready') {
			resolve()
		} else if (word === 'skip') {
			reject(Object.assign(new Error(rest.join(' ')), { skip: true }))
		}
	}

	go () {
		this.process.stdin.write('go\n')
	}

	async stop () {
		if (this.gone) return
		this.process.stdin.write('stop\n')
		const late = setTimeout(() => this.process.kill('SIGKILL'), 20000)
		await this.exited
		clearTimeout(late)
	}
}

export async function readyWorker (name, adapter, config, database, mode) {
	const [command, args, environment] = adapter.workerCommand
		? adapter.workerCommand(config, database, mode)
		: [process.execPath, [path.join(here, 'worker.mjs'), name, config, database, mode], {}]
	const worker = new Worker(command, args, environment)
	await worker.ready
	return worker
}
