// worker.mjs PEER CONFIG DATABASE MODE: a worker process of a peer whose adapter runs in Node.
// See Worker in common.mjs for the lines that it speaks. MODE is "drain" or "latency".
import { createInterface } from 'node:readline'
import { now } from './common.mjs'

const [peer, config, database, mode] = process.argv.slice(2)
const adapter = await import(`./adapters/${peer}.mjs`)
const say = line => process.stdout.write(line + '\n')

let done = 0
let said = 0
const report = {
	done (count) { done += count },
	started (name, nanoseconds) { say(`start ${name} ${nanoseconds}`) },
	job: mode === 'latency'
		? payload => { say(`start ${payload.id} ${now()}`) }
		: () => { done++ }
}
setInterval(() => {
	if (done === said) return
	said = done
	say(`n ${done}`)
}, 10).unref()

let starting
let stopping
// Also when whoever measures is gone: a worker that has programs of its own must end them.
const stop = () => stopping ??= (async () => {
	await (await starting)?.stop()
	process.exit(0)
})()
createInterface({ input: process.stdin }).on('line', line => {
	if (line === 'go') starting = adapter.startWorker(database, config, report, mode)
	if (line === 'stop') stop()
}).on('close', stop)

try {
	await adapter.check?.(config)
	say('ready')
} catch (error) {
	if (!error.skip) throw error
	say(`skip ${error.message}`)
}
