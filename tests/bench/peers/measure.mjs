// measure.mjs MEASURE PEER CONFIG: measures one thing of one peer in one configuration, and
// prints lines "peers.MEASURE.NAME value unit". README.md says what the measures are.
//
// environment: BENCH_JOBS      jobs of a drain (default 50000; a configuration may need fewer)
//              BENCH_SECONDS   seconds of a latency run (default 20)
//              BENCH_ROUNDS    rounds of "pinned" (default 10)
import {
	freshDatabase, now, payload, payloads, payloadText, pgbench, quantile, query, readyWorker,
	secondsSince, sleep, sorted, waitUntil, withClient
} from './common.mjs'

const [measure, peer, config] = process.argv.slice(2)
const adapter = await import(`./adapters/${peer}.mjs`)
const jobs = Math.min(Number(process.env.BENCH_JOBS ?? 50000), adapter.configs[config]?.mostJobs ?? Infinity)
const seconds = Number(process.env.BENCH_SECONDS ?? 20)
const rounds = Number(process.env.BENCH_ROUNDS ?? 10)

const name = config === 'only' ? peer : `${peer}_${config}`
const emit = (figure, value, unit) => console.log(
	`peers.${measure}.${name}${figure} ${Number(value.toPrecision(6))} ${unit}`)

async function preload (database, count, from = 0) {
	const producer = await adapter.openProducer(database, 1)
	for (let i = 0; i < count; i += 1000) {
		await producer.bulk(payloads(from + i, Math.min(1000, count - i)))
	}
	await producer.close()
	await query(database, 'analyze')
}

const isDone = async database => !(await query(database, adapter.remainingSql))[0].more

// Runs a backlog that is there, and returns jobs a second, without the worker's own start: from
// the first jobs done to the last completion committed.
async function drain (database, count) {
	const worker = await readyWorker(peer, adapter, config, database, 'drain')
	worker.go()
	await waitUntil(() => {
		if (worker.gone) throw new Error('the worker has ended early')
		return worker.done >= count
	}, 120, 'the end of the backlog')
	await waitUntil(() => isDone(database), 30, 'the last completion')
	const rate = (count - worker.first.done) / secondsSince(worker.first.at)
	await worker.stop()
	return rate
}

const measures = {
	async drain () {
		const database = await freshDatabase(adapter)
		await preload(database, jobs)
		emit('', await drain(database, jobs), 'jobs/s')
	},

	async latency () {
		const rate = 50
		const warmUp = 2 * rate
		const database = await freshDatabase(adapter)
		const worker = await readyWorker(peer, adapter, config, database, 'latency')
		worker.go()
		await sleep(2000)
		const producer = await adapter.openProducer(database, 4)
		const committed = new Map()
		const pending = []
		const start = now()
		for (let i = 0; i < warmUp + seconds * rate; i++) {
			await sleep(Math.max(0, (i + Math.random()) / rate - secondsSince(start)) * 1000)
			pending.push(producer.one(payload(i)).then(job => {
				if (i >= warmUp) committed.set(String(job ?? i), now())
			}))
		}
		await Promise.all(pending)
		await waitUntil(() => [...committed.keys()].every(job => worker.starts.has(job)), 15, 'the last start')
		const delays = sorted([...committed].map(([job, at]) => Number(worker.starts.get(job) - at) / 1e6))
		emit('_p50', quantile(delays, 0.5), 'ms')
		emit('_p95', quantile(delays, 0.95), 'ms')
		emit('_p99', quantile(delays, 0.99), 'ms')
		await producer.close()
		await worker.stop()
	},

	async enqueue () {
		const database = await freshDatabase(adapter)
		const order = "begin;\ninsert into public.orders (goods) values ('two chairs');\n"
		await query(database, `create table public.orders (id bigint primary key generated always as identity,
			goods text, made_at timestamptz default now())`)
		for (const clients of [1, 8]) {
			const without = pgbench(database, order + 'commit;\n', clients, 4)
			const withJob = pgbench(database, `${order}${adapter.enqueueSql}\ncommit;\n`, clients, 4)
			emit(`_${clients}`, clients * (1e6 / withJob - 1e6 / without), 'us')
		}
	},

	// Twice; the second round writes into pages that were logged whole in the first.
	async wal () {
		const count = Math.min(jobs, 10000)
		const database = await freshDatabase(adapter)
		const position = async () =>
			Number((await query('postgres', "select pg_current_wal_insert_lsn() - '0/0' as bytes"))[0].bytes)
		let start
		for (let round = 0; round < 2; round++) {
			start = await position()
			const producer = await adapter.openProducer(database, 4)
			let next = 0
			await Promise.all(Array.from({ length: 4 }, async () => {
				while (next < count) await producer.one(payload(next++))
			}))
			await producer.close()
			await drain(database, count)
		}
		emit('', (await position() - start) / count, 'bytes/job')
	},

	async pinned () {
		const count = Math.min(jobs, 10000)
		const last = {}
		for (const state of ['free', 'held']) {
			const database = await freshDatabase(adapter)
			await withClient(database, async client => {
				await client.query('begin isolation level repeatable read')
				if (state === 'held') await client.query('select 1')
				for (let round = 1; round <= rounds; round++) {
					await preload(database, count, round * 1000000)
					last[state] = await drain(database, count)
					if (round === 1) emit(`_${state}_first`, last[state], 'jobs/s')
				}
			})
			emit(`_${state}_last`, last[state], 'jobs/s')
		}
		emit('_kept', 100 * last.held / last.free, '%')
	}
}

try {
	await measures[measure]()
} catch (error) {
	if (!error.skip) throw error
	console.log(`# peers.${measure}.${name}: skipped, ${error.message}`)
}
process.exit(0)
