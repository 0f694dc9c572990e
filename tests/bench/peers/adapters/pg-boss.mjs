import { connection, importPackage, payloadText } from '../common.mjs'

const { PgBoss } = await importPackage('pg-boss')

// Both are woken by NOTIFY. (By default it asks every 2 s for one job.)
export const configs = {
	notify: { work: { batchSize: 1, localConcurrency: 8, burstWhenReadyExceeds: 1 } },
	batch500: { work: { batchSize: 500, localConcurrency: 4, burstWhenBatchFull: true } }
}
export const enqueueSql = `insert into pgboss.job (name, data) values ('noop', '${payloadText}');` // as its manual says
export const remainingSql = "select exists (select from pgboss.job where name = 'noop' and state < 'completed') as more"

function newBoss (database, options) {
	const boss = new PgBoss({ ...connection(database), ...options })
	boss.on('error', error => console.error('pg-boss:', error.message))
	return boss
}

export async function install (database) {
	const boss = newBoss(database, { supervise: false, schedule: false })
	await boss.start()
	await boss.createQueue('noop', { notify: true })
	await boss.stop({ graceful: false })
}

export async function openProducer (database, connections) {
	const boss = newBoss(database, { max: connections, supervise: false, schedule: false })
	await boss.start()
	return {
		one: async payload => { await boss.send('noop', payload) },
		bulk: payloads => boss.insert('noop', payloads.map(data => ({ data }))),
		close: () => boss.stop({ graceful: false })
	}
}

export async function startWorker (database, config, report) {
	const boss = newBoss(database, { max: 10, useListenNotify: true })
	await boss.start()
	await boss.work('noop', configs[config].work, async jobs => { for (const job of jobs) report.job(job.data) })
	return { stop: () => boss.stop({ graceful: true, timeout: 5000 }) }
}
