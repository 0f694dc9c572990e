// PgQ is a log: batches are cut by the ticks of pgqd, and consuming marks whole batches.
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { connection, payloadText, pg, query, skip, sleep } from '../common.mjs'

// Every 20 ms a tick, and a look for a new batch. (The default of both is a second or more.)
export const configs = { fast: {} }
const pollMs = 20
const tickerSettings = { ticker_period: 0.02 }
const queueSettings = { ticker_max_lag: '0 s', ticker_idle_period: '1 s' }
export const enqueueSql = `select pgq.insert_event('q', 'noop', '${payloadText}');`
export const remainingSql = `select coalesce(max(tick_id) > (select min(sub_last_tick) from pgq.subscription), false)
	as more from pgq.tick`

export async function install (database) {
	const [{ available }] = await query(database,
		"select exists (select from pg_available_extensions where name = 'pgq') as available")
	if (!available) skip('the extension pgq is not installed')
	await query(database, "create extension pgq; select pgq.create_queue('q'), pgq.register_consumer('q', 'c')")
	await query(database, "select pgq.ticker('q')")
}

export async function openProducer (database, connections) {
	const pool = new pg.Pool({ ...connection(database), max: connections })
	const insert = { name: 'insert', text: "select pgq.insert_event('q', 'noop', $1)" }
	return {
		one: async payload => { await pool.query({ ...insert, values: [JSON.stringify(payload)] }) },
		// with a tick, so that a backlog comes in batches of this size
		bulk: async payloads => {
			await pool.query("select count(pgq.insert_event('q', 'noop', e)) from unnest($1::text[]) e",
				[payloads.map(payload => JSON.stringify(payload))])
			await pool.query("select pgq.force_tick('q')")
			await pool.query("select pgq.ticker('q')")
		},
		close: () => pool.end()
	}
}

function startTicker (database) {
	const folder = mkdtempSync(path.join(os.tmpdir(), 'outbox-bench-'))
	const file = path.join(folder, 'pgqd.ini')
	const { host, port, user } = connection(database)
	const settings = {
		base_connstr: `host=${host} port=${port} user=${user}`,
		initial_database: database,
		database_list: database,
		syslog: 0,
		...tickerSettings
	}
	writeFileSync(file, '[pgqd]\n' + Object.entries(settings).map(([key, value]) => `${key} = ${value}\n`).join(''))
	const ticker = spawn('pgqd', ['-q', file], { stdio: 'ignore' })
	return () => {
		ticker.kill('SIGTERM')
		rmSync(folder, { recursive: true })
	}
}

export async function startWorker (database, _config, report) {
	const client = new pg.Client(connection(database))
	await client.connect()
	for (const [key, value] of Object.entries(queueSettings)) {
		await client.query("select pgq.set_queue_config('q', $1, $2)", [key, value])
	}
	const stopTicker = startTicker(database)
	let stopping = false
	const loop = async () => {
		while (!stopping) {
			const { rows: [{ batch }] } = await client.query("select pgq.next_batch('q', 'c') as batch")
			if (batch === null) {
				await sleep(pollMs)
				continue
			}
			const { rows } = await client.query({ name: 'events', text: 'select ev_data from pgq.get_batch_events($1)', values: [batch] })
			for (const row of rows) report.job(JSON.parse(row.ev_data))
			await client.query('select pgq.finish_batch($1)', [batch])
		}
	}
	const ended = loop()
	return {
		stop: async () => {
			stopping = true
			await ended
			stopTicker()
			await client.end()
		}
	}
}
