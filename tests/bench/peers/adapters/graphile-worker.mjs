import { connection, importPackage, payloadText, pg } from '../common.mjs'

const { run, makeWorkerUtils, Logger } = await importPackage('graphile-worker')
const logger = new Logger(() => () => {})
const batching = { localQueue: { size: 500, refetchDelay: { durationMs: 10 } }, completeJobBatchDelay: 0, failJobBatchDelay: 0 }

// default: a job is fetched and completed by itself; tuned: as in its own performance test
export const configs = {
	default: { mostJobs: 10000, worker: { concurrentJobs: 8 } },
	tuned: { worker: { concurrentJobs: 24, ...batching } }
}
export const enqueueSql = `select graphile_worker.add_job('noop', '${payloadText}');`
export const remainingSql = 'select exists (select from graphile_worker._private_jobs) as more'

function newPool (database, max) {
	const pool = new pg.Pool({ ...connection(database), max })
	pool.on('error', () => {})
	pool.on('connect', client => client.on('error', () => {}))
	return pool
}

export async function install (database) {
	const pool = newPool(database, 1)
	const utils = await makeWorkerUtils({ pgPool: pool, logger })
	await utils.migrate()
	await utils.release()
	await pool.end()
}

export async function openProducer (database, connections) {
	const pool = newPool(database, connections)
	const utils = await makeWorkerUtils({ pgPool: pool, logger })
	return {
		one: async payload => { await utils.addJob('noop', payload) },
		bulk: payloads => utils.addJobs(payloads.map(payload => ({ identifier: 'noop', payload }))),
		close: async () => {
			await utils.release()
			await pool.end()
		}
	}
}

export async function startWorker (database, config, report) {
	process.env.NO_LOG_SUCCESS = '1'
	const { worker } = configs[config]
	const maxPoolSize = worker.concurrentJobs + 1
	const pool = newPool(database, maxPoolSize)
	const runner = await run({
		preset: { worker: { maxPoolSize, ...worker, logger } },
		pgPool: pool,
		noHandleSignals: true,
		taskList: { noop: report.job },
		crontab: ''
	})
	return {
		stop: async () => {
			await runner.stop()
			await pool.end()
		}
	}
}
