// River is a Go library: its worker is river/main.go, built by scripts/bench-peers. Producers are
// SQL, which does what its client does for one job.
import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import path from 'node:path'
import { connection, packages, payloadText, pg, skip } from '../common.mjs'

const program = path.join(packages, 'river/bench-river')

// default: 100 workers, fetches at least 100 ms apart; tuned: 2000, 2 ms
export const configs = { default: { mostJobs: 10000 }, tuned: {} }
const insert = 'insert into river_job (kind, args, max_attempts)'
const notify = `select pg_notify('public.river_insert', '{"queue": "default"}')`
export const enqueueSql = `with job as (${insert} values ('noop', '${payloadText}', 25)) ${notify};`
export const remainingSql = "select exists (select from river_job where state <> 'completed') as more"

export function install (database) {
	if (!existsSync(program)) skip('there is no Go toolchain that could build it')
	execFileSync(program, ['install'], { env: { ...process.env, PGDATABASE: database } })
}

export async function openProducer (database, connections) {
	const pool = new pg.Pool({ ...connection(database), max: connections })
	const one = { name: 'one', text: `with job as (${insert} values ('noop', $1, 25)) ${notify}` }
	return {
		one: async payload => { await pool.query({ ...one, values: [JSON.stringify(payload)] }) },
		bulk: payloads => pool.query(`${insert} select 'noop', e::jsonb, 25 from unnest($1::text[]) e`,
			[payloads.map(payload => JSON.stringify(payload))]),
		close: () => pool.end()
	}
}

export const workerCommand = (config, database, mode) =>
	[program, ['worker', config, mode], { PGDATABASE: database }]
